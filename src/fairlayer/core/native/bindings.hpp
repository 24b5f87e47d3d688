// One function per source file that adds its functions to the module; module.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>

namespace fairlayer {

// An argument that is an array: taken as it is, or refused, never copied into another dtype or layout.
inline auto array(const char* name) { return nanobind::arg(name).noconvert(); }

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
