"""What a poll costs, against nginx, Go and plain uvicorn doing the same work in the same run."""
