"""One file per file format or collection; `mtm.data.loading` chooses among them."""
