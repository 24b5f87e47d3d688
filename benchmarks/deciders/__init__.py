"""Methods that decide with nearly equal rates, ours and others', each in an environment of its own."""
