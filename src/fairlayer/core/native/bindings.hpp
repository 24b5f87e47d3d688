// One function per source file that adds its functions to the module; module.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>

namespace fairlayer {

void bind_affine(nanobind::module_& m);
void bind_cells(nanobind::module_& m);
void bind_decision_ledger(nanobind::module_& m);
void bind_dual_simplex(nanobind::module_& m);
void bind_ledger(nanobind::module_& m);
void bind_passes(nanobind::module_& m);
void bind_project(nanobind::module_& m);
void bind_simplex(nanobind::module_& m);
void bind_sweep(nanobind::module_& m);
void bind_thresholds(nanobind::module_& m);

}  // namespace fairlayer
