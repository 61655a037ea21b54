"""From files to segments: data sets, returns, normalisation, splits, missing data."""
