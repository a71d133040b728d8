"""What happens in the stories, by the part of the reference system that the defect is in."""
