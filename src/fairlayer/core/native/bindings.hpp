// One function per source file that adds its functions to the module; module.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>

namespace fairlayer {

void bind_dual_simplex(nanobind::module_& m);
void bind_running_sums(nanobind::module_& m);
void bind_sweep(nanobind::module_& m);

}  // namespace fairlayer
