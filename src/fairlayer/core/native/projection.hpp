// A projected batch, as Python has it: the output, what is known of it, and its derivative.
#pragma once

#include <optional>

#include "solve.hpp"

namespace fairlayer {

enum class Dtype { float32, float64, float16, bfloat16 };

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> as_span(const AnyArray& values) {
    return {static_cast<const T*>(values.data()), values.size()};
}

// A new array for Python. Halves cross the border as their bits: NumPy has no bfloat16.
template <class T>
nb::object new_array(std::size_t n, T*& data) {
    using Shown = std::conditional_t<sizeof(T) == 2, std::uint16_t, T>;
    data = new T[n];
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, Shown, nb::ndim<1>>(data, {n}, owner));
}

// How a solve ended, or why it did not begin.
enum class End { solved, infeasible, stalled, not_finite, outside, too_large };

class Projection {
  public:
    virtual ~Projection() = default;

    // The gradient with respect to z, given that of the output.
    virtual nb::object pull_back(const AnyArray& gradient) const = 0;

    bool holds() const { return end == End::solved && all_hold(solved.missed); }

    End end = End::solved;
    nb::object value;
    Solved solved;
    std::vector<std::int8_t> side;  // of each output: -1 below its lower bound, 1 above its upper one, 0 between them
};

// The lock is released for long work, so that other threads go on.
struct LongWork {
    explicit LongWork(std::size_t n) {
        if (n > long_batch) release.emplace();
    }
    std::optional<nb::gil_scoped_release> release;
};

// Call `work` with the type of a dtype.
template <class Work>
auto with_dtype(Dtype dtype, const Work& work) {
    switch (dtype) {
        case Dtype::float32:
            return work.template operator()<float>();
        case Dtype::float16:
            return work.template operator()<Half>();
        case Dtype::bfloat16:
            return work.template operator()<Bfloat>();
        default:
            return work.template operator()<double>();
    }
}

// Numbers of an object as an array that keeps it alive.
template <class T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> seen(const std::vector<T>& values) {
    return {values.data(), {values.size()}};
}

}  // namespace fairlayer
