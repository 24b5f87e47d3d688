// NumPy arrays at the border of the core: seen as spans on the way in, handed over without a copy on the way out.
//
// Inputs are const, so that read-only arrays are taken too; an array that is written to has a Mutable type.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace fairlayer {

namespace nb = nanobind;

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // (n,)
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // (n, d), row by row
template <class T>
using MutableVector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using MutableMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using Doubles = Vector<double>;
using Int32s = Vector<std::int32_t>;
using Int64s = Vector<std::int64_t>;
using DoubleMatrix = Matrix<double>;
using Int64Matrix = Matrix<std::int64_t>;

// What a function returns: a NumPy array that owns its memory.
template <class T>
using NewVector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// All entries of an array, row by row. The array must outlive the span.
template <class T, class... Rest>
std::span<T> entries(const nb::ndarray<T, Rest...>& array) {
    return {array.data(), array.size()};
}

// A vector's memory as a NumPy array.
template <class T>
NewVector<T> to_numpy(std::vector<T> values) {
    auto owned = std::make_unique<std::vector<T>>(std::move(values));
    nb::capsule owner(owned.get(), [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    std::vector<T>& kept = *owned.release();  // the capsule deletes it from here on
    return NewVector<T>(kept.data(), {kept.size()}, owner);
}

// An argument that is an array: taken as it is, or refused, never copied into another dtype or layout.
inline auto array(const char* name) { return nb::arg(name).noconvert(); }

// Each source file adds its functions to the module by one of these; module.cpp calls them.
void bind_affine(nb::module_& m);
void bind_cells(nb::module_& m);
void bind_decision_ledger(nb::module_& m);
void bind_dual_simplex(nb::module_& m);
void bind_ledger(nb::module_& m);
void bind_passes(nb::module_& m);
void bind_project(nb::module_& m);
void bind_simplex(nb::module_& m);
void bind_sweep(nb::module_& m);
void bind_thresholds(nb::module_& m);

}  // namespace fairlayer
