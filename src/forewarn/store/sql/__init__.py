"""What the engines that store rows share: the tables, and the way from values to rows and back."""
