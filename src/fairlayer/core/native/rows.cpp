#include "rows.hpp"

#include "solve.hpp"

namespace fairlayer {

std::vector<Pair> active_rows(const Rows& rows, std::span<const double> nu) {
    std::vector<Pair> active;
    for (const Family& family : rows.families) {
        if (family.kind == Kind::each) {
            const int k = family.begin;
            const bool equality = family.lower == family.upper;
            if (!rows.present[k] || !(nu[k] != 0.0 || equality)) continue;
            active.push_back(nu[k] >= 0.0 ? Pair{k, 0, 1.0, 0.0, family.upper, equality}
                                          : Pair{0, k, 0.0, 1.0, -family.lower, equality});
            continue;
        }
        const bool equality = family.ratio == 1.0 && family.upper == 0.0;
        int top = -1, bottom = -1;
        for (int k = family.begin; k < family.end; ++k) {
            if (!rows.present[k]) continue;
            if (top < 0 && (nu[k] > 0.0 || equality)) top = k;
            if (bottom < 0 && nu[k] < 0.0) bottom = k;
        }
        if (top < 0 || (bottom < 0 && !equality)) continue;
        for (int k = family.begin; k < family.end; ++k) {
            if (!rows.present[k]) continue;
            if (equality) {
                if (k != top) active.push_back({top, k, 1.0, 1.0, 0.0, true});
            } else if (nu[k] > 0.0) {
                active.push_back({k, bottom, family.ratio, 1.0, family.upper, false});
            } else if (nu[k] < 0.0 && k != bottom) {
                active.push_back({top, k, family.ratio, 1.0, family.upper, false});
            }
        }
    }
    return active;
}

Numbers solve_active(const Rows& rows, std::span<const double> nu, std::span<const double> H,
                     std::span<const double> q) {
    const int K = rows.statistics();
    Numbers v(K, 0.0);
    const std::vector<Pair> active = active_rows(rows, nu);
    const bool equalities = std::any_of(active.begin(), active.end(), [](const Pair& row) { return row.equality; });
    if (K > Sides::few && !equalities) {
        Sides sides(rows.families, rows.present, K);
        for (const Pair& row : active) {
            if (row.p != 0.0) sides.side[row.plus] = 1;
            if (row.m != 0.0) sides.side[row.minus] = -1;
        }
        if (sides.solve(H, q, v)) return v;
        std::fill(v.begin(), v.end(), 0.0);
    }
    std::vector<Pair> used;
    Factor factor(K + 1);
    Numbers x, column(K + 1);
    for (const Pair& row : active) {  // except those that depend on others
        const double own = pair_gram(H, K, row, row);
        for (std::size_t a = 0; a < used.size(); ++a) column[a] = pair_gram(H, K, row, used[a]);
        factor.forward(column);
        double rest = own;
        for (std::size_t a = 0; a < used.size(); ++a) rest -= column[a] * column[a];
        if (!(own > 0.0 && rest > 1e-12 * own)) continue;
        factor.append(column, rest);
        used.push_back(row);
        x.push_back(row.value(q));
    }
    factor.forward(x);
    factor.backward(x);
    for (std::size_t a = 0; a < used.size(); ++a) used[a].add_to(v, x[a]);
    return v;
}

}  // namespace fairlayer
