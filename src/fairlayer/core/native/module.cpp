// The module fairlayer.core._native: each source file binds its own functions.
#include "arrays.hpp"

NB_MODULE(_native, m) {
    nanobind::set_leak_warnings(false);  // a program may still hold arrays when it ends
    fairlayer::bind_affine(m);
    fairlayer::bind_cells(m);
    fairlayer::bind_decision_ledger(m);
    fairlayer::bind_dual_simplex(m);
    fairlayer::bind_ledger(m);
    fairlayer::bind_passes(m);
    fairlayer::bind_project(m);
    fairlayer::bind_simplex(m);
    fairlayer::bind_sweep(m);
    fairlayer::bind_thresholds(m);
}
