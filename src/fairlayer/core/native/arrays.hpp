// NumPy arrays at the border of the core: seen as spans on the way in, handed over without a copy on the way out.
//
// Bind array arguments with `nb::arg("z").noconvert()`: an array of another dtype or layout is then an error, not a
// silent copy. Inputs are const, so that read-only arrays are taken too; an array that is written to has a Mutable
// type.
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

using Floats = Vector<float>;
using Doubles = Vector<double>;
using Int32s = Vector<std::int32_t>;
using Int64s = Vector<std::int64_t>;
using Bytes = Vector<std::uint8_t>;

using FloatMatrix = Matrix<float>;
using DoubleMatrix = Matrix<double>;
using Int32Matrix = Matrix<std::int32_t>;
using Int64Matrix = Matrix<std::int64_t>;
using ByteMatrix = Matrix<std::uint8_t>;

// What a function returns: a NumPy array that owns its memory.
template <class T>
using NewVector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <class T>
using NewMatrix = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

// All entries of an array, row by row. The array must outlive the span.
template <class T, class... Rest>
std::span<T> entries(const nb::ndarray<T, Rest...>& array) {
    return {array.data(), array.size()};
}

// The owner of a vector's memory, which moves there.
template <class T>
nb::capsule own(std::vector<T>& values) {
    auto owned = std::make_unique<std::vector<T>>(std::move(values));
    nb::capsule owner(owned.get(), [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    owned.release();  // the capsule deletes it from here on
    return owner;
}

// A vector's memory as a NumPy array.
template <class T>
NewVector<T> to_numpy(std::vector<T> values) {
    T* data = values.data();
    const std::size_t size = values.size();
    return NewVector<T>(data, {size}, own(values));
}

// The same in a shape, row by row: rows * columns must be its size.
template <class T>
NewMatrix<T> to_numpy(std::vector<T> values, std::size_t rows, std::size_t columns) {
    T* data = values.data();
    return NewMatrix<T>(data, {rows, columns}, own(values));
}

}  // namespace fairlayer
