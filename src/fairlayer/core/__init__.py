"""The compiled core: arrays in, arrays out. It is written in C++ (`native/`) and knows nothing of torch."""
