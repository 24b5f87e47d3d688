// The module fairlayer.core._native: each source file binds its own functions.
#include "bindings.hpp"

NB_MODULE(_native, m) {
    fairlayer::bind_dual_simplex(m);
    fairlayer::bind_running_sums(m);
    fairlayer::bind_sweep(m);
}
