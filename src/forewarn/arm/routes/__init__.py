"""The operations, by subject. Each is declared with `arm.routing.route`."""
