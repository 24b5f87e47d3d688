"""What the stream suite is made of: scenarios, methods, checks, clocks and figures."""
