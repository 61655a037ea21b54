"""Speed, measured as ratios in one run on one machine. `make bench` prints and writes JSON."""
