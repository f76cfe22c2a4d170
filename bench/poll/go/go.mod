module forewarn/bench/poll

go 1.27
