module drain

go 1.18
