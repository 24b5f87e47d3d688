// Discrepancies as the core has them: the response rho(z, s) = argmin_y d(y, z) + s y, its slope -d rho / d s and its
// sensitivity d rho / d z. What a sample needs of its cell's shift is one factor, taken once per cell: a pass over the
// samples has no exponential in it.
#pragma once

#include "rows.hpp"

namespace fairlayer {

inline constexpr double furthest =
    340.0;  // shifts and logits beyond count as it: products of two exponentials stay finite

struct Response {
    double y, slope;
};

// d(y, z) = (y - z)^2 / 2.
struct Squared {
    static constexpr bool smooth = false;
    static double prepare(double z) { return z; }
    static double factor(double s) { return s; }
    static Response respond(double z, double factor) { return {z - factor, 1.0}; }
    static double sensitivity(double, double) { return 1.0; }
};

// Relative entropy of probabilities; at s = 0 the response is z to the bit.
struct Entropy {
    static constexpr bool smooth = true, below_one = true;
    static double prepare(double z) { return z; }
    static double factor(double s) { return std::exp(std::clamp(s, -furthest, furthest)); }
    static Response respond(double z, double factor) {
        const double against = (1.0 - z) * factor, per = 1.0 / (z + against), y = z * per;
        return {y, y * (against * per)};
    }
    static double sensitivity(double z, double factor) {
        const double per = 1.0 / (z + (1.0 - z) * factor);
        return factor * per * per;
    }
    static double reach(double least, double greatest) {
        return 40.0 + std::max(-std::log(least), -std::log1p(-greatest));
    }
    static bool takes(double least, double greatest) { return least > 0.0 && greatest < 1.0; }
};

// The same of z that are logits, prepared as the odds against: nothing is lost near 0 and 1.
struct Logits {
    static constexpr bool smooth = true, below_one = true;
    static double prepare(double z) { return std::exp(-std::clamp(z, -furthest, furthest)); }
    static double factor(double s) { return std::exp(std::clamp(s, -furthest, furthest)); }
    static Response respond(double odds, double factor) {
        const double product = odds * factor, y = 1.0 / (1.0 + product);
        return {y, product * y * y};
    }
    static double sensitivity(double odds, double factor) { return respond(odds, factor).slope; }
    static double reach(double least, double greatest) {
        return 40.0 + std::max(std::abs(std::log(least)), std::abs(std::log(greatest)));
    }
    static bool takes(double, double) { return true; }
};

// d(y, z) = y log(y / z) - y + z of amounts.
struct GeneralizedKl {
    static constexpr bool smooth = true, below_one = false;
    static double prepare(double z) { return z; }
    static double factor(double s) { return std::exp(std::clamp(-s, -furthest, furthest)); }
    static Response respond(double z, double factor) { return {z * factor, z * factor}; }
    static double sensitivity(double, double factor) { return factor; }
    static double reach(double, double) { return 3.0; }  // amounts grow by the exponential of a shift that goes too far
    static bool takes(double least, double) { return least > 0.0; }
};

}  // namespace fairlayer
