// Numbers: float64, in which all is computed, and the dtypes of outputs, whose numbers are all float64; `nearest`
// rounds back.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace fairlayer {

inline constexpr double unit = 0x1p-53;    // relative rounding error of float64
inline constexpr double tiny = 0x1p-1074;  // the least float64 above zero
inline constexpr double infinity = std::numeric_limits<double>::infinity();

using Numbers = std::vector<double>;

// The sum a + b and what its rounding lost, exactly (Knuth).
inline void two_sum(double a, double b, double& sum, double& lost) {
    sum = a + b;
    const double back = sum - a;
    lost = (a - (sum - back)) + (b - back);
}

struct Half {  // IEEE binary16
    std::uint16_t bits;
    operator double() const {
        const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
        const double sign = bits >> 15 ? -1.0 : 1.0;
        if (exponent == 31) return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
        return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
    }
};

struct Bfloat {  // bfloat16
    std::uint16_t bits;
    operator double() const { return double(std::bit_cast<float>(std::uint32_t(bits) << 16)); }
};

template <class T>
struct Float {  // float and double
    using Stored = T;
    static constexpr double rounding = std::numeric_limits<T>::epsilon() / 2;
    static constexpr double least = std::numeric_limits<T>::min();
    static constexpr double below_one = 1.0 - std::numeric_limits<T>::epsilon() / 2;
    static T nearest(double value) { return T(value); }
};

template <>
struct Float<Half> {
    using Stored = float;
    static constexpr double rounding = 0x1p-11, least = 0x1p-14, below_one = 1.0 - 0x1p-11;
    static Half nearest(double value) {
        const double size = std::abs(value);
        const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
        if (std::isnan(value)) return {0x7E00};
        if (size >= 65520.0) return {std::uint16_t(sign | 0x7C00)};
        // On the grid of numbers of this size, to which std::nearbyint rounds, ties to even.
        const int exponent = size < least ? -14 : std::ilogb(size);
        const double steps = std::nearbyint(std::ldexp(size, 10 - exponent));
        return {std::uint16_t(sign | (std::uint16_t(exponent + 14) * 1024 + std::uint16_t(steps)))};
    }
};

template <>
struct Float<Bfloat> {
    using Stored = float;
    static constexpr double rounding = 0x1p-8, least = 0x1p-126, below_one = 1.0 - 0x1p-8;
    static Bfloat nearest(double value) {
        const auto bits = std::bit_cast<std::uint32_t>(float(value));
        if (std::isnan(value)) return {0x7FC0};
        return {std::uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
    }
};

}  // namespace fairlayer
