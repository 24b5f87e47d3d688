// The small quadratic programme inside every Newton step: given the Gram matrix H of the statistics and their values b
// at zero multipliers, it finds
//
//     min_nu  1/2 nu'H nu - b'nu + price(nu),
//
// the dual of "move the statistics as little as possible, in the metric of H, until every row holds".
//
// Pairs of statistics are never listed. A family that compares its statistics has a *middle* m instead, a variable
// without a price: each statistic stays below m + upper / 2 (over the family's ratio) and above m - upper / 2. So there
// are at most two rows for a statistic, each active row is one statistic *held* on one side, and multipliers and
// middles of what is held solve one linear system,
//
//     (H_AA nu)_k + share_k m = b_k - at_k   for every k held,      sum of share_k nu_k = 0   for every middle.
#pragma once

#include <optional>

#include "rows.hpp"

namespace fairlayer {

// A statistic held on one side, q_k = share * middle + at. Its multiplier has the sign of that side.
struct Hold {
    Hold(int statistic, int of_family, const Family& family, double on);

    int k, family;
    double side;   // 1 from above, -1 from below
    double share;  // 0 where there is no middle
    double at;
    bool equality;  // its multiplier may have any sign
};

// A step towards one more row: one statistic to be held or, of a family in which none is, two of them at once.
struct Entering {
    std::vector<Hold> holds;
    std::vector<double> amount;  // of each in the row, q'amount <= bound
};

// What is held, and the factor of its linear system, which grows and shrinks by one at a time. Cholesky rows are kept
// from their first entry that is not zero: for the diagonal matrix of disjoint groups they have one entry each. What
// has no pivot there, the middles and groups that depend on others, follows as a border.
class ActiveSet {
  public:
    ActiveSet(const Gram& H, std::span<const Family> families);

    void add(const Entering& entering);
    // Whether a row does not depend on those of what is held already.
    bool is_independent(const Entering& entering);
    // Hold no longer; nor the rest of its family, where that has lost one of its sides. kept: a side that counts as
    // held. Returns the family.
    int drop(int k, const Hold* kept = nullptr);

    // How multipliers and middles change so that everything stays where it is held while the multiplier of the entering
    // row grows by 1. Returns by how much that row then falls: its squared distance to what is held.
    double direction(const Entering& entering);

    // Multipliers and middles that hold everything where it is to be held, at: as said, or at 0.
    void settle(std::span<const double> b, std::span<double> nu, bool at);
    void move_middles(double length);
    double own_square(const Entering& entering) const;

    // Call work(hold, its part of the direction).
    template <class Work>
    void each(const Work& work) const {
        for (std::size_t a = 0; a < inner_.size(); ++a) work(inner_[a], x_[a]);
        for (std::size_t j = 0; j < outer_.size(); ++j) {
            if (outer_[j].hold) work(*outer_[j].hold, x_[inner_.size() + j]);
        }
    }

    // The side on which a statistic is held, or 0, and whether a family has a middle now.
    std::vector<std::int8_t> side;
    std::vector<std::uint8_t> active;
    Numbers middle;

  private:
    struct Line {
        int first;
        Numbers entry;  // from the column `first` to the diagonal
    };
    struct Outer {  // a row of the border
        int family;
        std::optional<Hold> hold;  // none: it stands for the middle of the family
        Numbers entry;             // solved forward
    };

    void hold(const Hold& one);
    void add_column(int k, double amount, std::span<double> to) const;
    void append(const Hold& one, std::span<const double> column, double pivot);
    void remove_line(std::size_t gone);
    void forward(std::span<double> x) const;
    void solve();
    void factor_border();
    void solve_border(std::span<double> x) const;
    double between(const Outer& i, const Outer& j) const;
    double between(const Outer& i, const Hold& held) const;

    const Gram& H_;
    std::span<const Family> families_;
    std::vector<Hold> inner_;
    std::vector<int> place_;  // of each statistic among them, or -1
    std::vector<Line> lines_;
    std::vector<Outer> outer_;
    Numbers x_, q_, border_, scale_;
    std::vector<int> pivot_;
    bool stale_ = true;
};

enum class QpOutcome { solved, conflict, exhausted };

// Solved by the dual active-set method of Goldfarb and Idnani (Mathematical Programming 27, 1983): the most violated
// row comes in, rows whose multiplier would change its sign go out, and it ends when no row is violated. H need not
// have full rank, and a failure names the statistics that contradict each other.
//
// nu: where to start from, and the solution. tolerance: how exactly each statistic can be known. On a conflict nu is
// its direction: the statistics that cannot be where rows want them.
QpOutcome solve_qp(const Gram& H, std::span<const double> b, std::span<const Family> families,
                   std::span<const bool> present, std::span<const double> tolerance, std::span<double> nu);

// Multipliers v, one for each statistic, with A D A' v = A D g over the active rows A, and 0 elsewhere: what the
// derivative of the projection needs. H: Gram matrix of the slopes; q: statistics of D g.
Numbers solve_active(const Rows& rows, std::span<const double> nu, const Gram& H, std::span<const double> q);

}  // namespace fairlayer
