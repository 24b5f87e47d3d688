// Sums without rounding: whole numbers in limbs of 32 bits, which add up to the same in any order.
//
// A float64 is a whole number times a power of 2, so it can be added to a long whole number exactly. This is the one
// place where sums are taken that a promise rests on: of outputs, targets, weights, files and streams.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "rows.hpp"

namespace fairlayer {

inline constexpr int limbs_of_sums = 68;       // in units of 2^-1074
inline constexpr int limbs_of_products = 136;  // of sums of products of two float64, in units of 2^-2148

// One sum. A limb has room for 2^31 terms before `carry` is due.
class Limbs {
  public:
    explicit Limbs(std::span<std::int64_t> limb) : limb_(limb) {}

    void add(double value) {
        const Whole a(value);
        add_whole(a.place, a.mantissa, a.negative);
    }

    void add_product(double x, double y) {
        constexpr std::uint64_t half = (std::uint64_t(1) << 27) - 1;
        const Whole a(x), b(y);
        const int place = a.place + b.place;
        const bool negative = a.negative != b.negative;
        add_whole(place, (a.mantissa & half) * (b.mantissa & half), negative);
        add_whole(place + 27, (a.mantissa & half) * (b.mantissa >> 27), negative);
        add_whole(place + 27, (a.mantissa >> 27) * (b.mantissa & half), negative);
        add_whole(place + 54, (a.mantissa >> 27) * (b.mantissa >> 27), negative);
    }

    // Bring every limb but the last below 2^32.
    void carry() {
        std::int64_t over = 0;
        for (std::size_t k = 0; k + 1 < limb_.size(); ++k) {
            const std::int64_t total = limb_[k] + over;
            limb_[k] = total & low_;
            over = total >> 32;
        }
        limb_.back() += over;
    }

    // The sum, rounded once; limbs count multiples of 2^exponent.
    double rounded(int exponent) const {
        std::vector<std::int64_t> whole(limb_.begin(), limb_.end());
        Limbs(whole).carry();
        const bool negative = whole.back() < 0;
        if (negative) {  // its opposite has the same digits
            for (std::size_t k = 0; k < whole.size(); ++k) whole[k] = -limb_[k];
            Limbs(whole).carry();
        }
        double high = 0.0, low = 0.0;
        for (int k = int(whole.size()) - 1; k >= 0; --k) {
            if (whole[k] == 0) continue;
            double lost;
            two_sum(high, std::ldexp(double(whole[k]), 32 * k + exponent), high, lost);
            low += lost;
        }
        return negative ? -(high + low) : high + low;
    }

  private:
    static constexpr std::int64_t low_ = 0xFFFFFFFF;

    // A float64 as a whole number: mantissa * 2^(place - 1074).
    struct Whole {
        explicit Whole(double value) {
            const auto bits = std::bit_cast<std::uint64_t>(value);
            negative = bits >> 63;
            place = int((bits >> 52) & 0x7FF);
            mantissa = bits & 0xFFFFFFFFFFFFF;
            if (place > 0) {
                mantissa |= std::uint64_t(1) << 52;
                --place;
            }
        }
        int place;
        std::uint64_t mantissa;
        bool negative;
    };

    // limbs += mantissa * 2^place, mantissa below 2^54.
    void add_whole(int place, std::uint64_t mantissa, bool negative) {
        const int at = place >> 5, by = place & 31;
        const std::uint64_t low = (mantissa & low_) << by;
        const std::uint64_t high = ((mantissa >> 32) << by) + (low >> 32);
        const std::int64_t sign = negative ? -1 : 1;
        limb_[at] += sign * std::int64_t(low & low_);
        limb_[at + 1] += sign * std::int64_t(high & low_);
        limb_[at + 2] += sign * std::int64_t(high >> 32);
    }

    std::span<std::int64_t> limb_;
};

// Sums of values, times weights where there are any, by cell: each rounded once, and a bound on what that leaves out.
template <class Values>
void exact_sums(const Values& values, std::span<const std::int32_t> cell, std::span<const double> weight,
                std::span<double> sums, std::span<double> error) {
    const bool weighted = !weight.empty();
    const int width = weighted ? limbs_of_products : limbs_of_sums;
    std::vector<std::int64_t> limbs(sums.size() * width, 0);
    auto of = [&](std::size_t c) { return Limbs(std::span(limbs).subspan(c * width, width)); };
    for (std::size_t i = 0; i < cell.size(); ++i) {
        if (weighted) {
            of(cell[i]).add_product(double(values[i]), weight[i]);
        } else {
            of(cell[i]).add(double(values[i]));
        }
    }
    for (std::size_t c = 0; c < sums.size(); ++c) {
        sums[c] = of(c).rounded(weighted ? -2148 : -1074);
        error[c] = unit * std::abs(sums[c]) + (weighted ? tiny : 0.0);
    }
}

}  // namespace fairlayer
