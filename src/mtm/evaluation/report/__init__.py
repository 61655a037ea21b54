"""What people look at: tables, pictures, and a page of a run."""
