#include "small_qp.hpp"

namespace fairlayer {

namespace {

constexpr double independent = 1e-6;  // a pivot over its diagonal entry, from which it is divided by
constexpr double dependent = 1e-12;   // a row's squared distance to the span of the active ones, over its own
constexpr double rounding = 1e6;      // times the tolerance: too small a breach to be a contradiction

// The sum of products, in several lanes, which vectorise in a fixed order.
double dot(const double* a, const double* b, std::size_t n) {
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    std::size_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int l = 0; l < 4; ++l) lane[l] += a[k + l] * b[k + l];
    }
    for (; k < n; ++k) lane[0] += a[k] * b[k];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

}  // namespace

Hold::Hold(int statistic, int of_family, const Family& own, double on) : k(statistic), family(of_family), side(on) {
    if (own.kind == Kind::each) {
        share = 0.0;
        at = on > 0.0 ? own.upper : own.lower;
        equality = own.lower == own.upper;
    } else {
        const double ratio = on > 0.0 ? own.ratio : 1.0;
        share = 1.0 / ratio;
        at = on * 0.5 * own.upper / ratio;
        equality = own.ratio == 1.0 && own.upper == 0.0;
    }
}

ActiveSet::ActiveSet(const Gram& H, std::span<const Family> families)
    : side(H.size(), 0),
      active(families.size(), 0),
      middle(families.size(), 0.0),
      H_(H),
      families_(families),
      place_(H.size(), -1) {}

// What the factor's rows have in common with statistic k.
void ActiveSet::add_column(int k, double amount, std::span<double> to) const {
    H_.each(k, [&](int other, double value) {
        if (place_[other] >= 0) to[place_[other]] += amount * value;
    });
}

double ActiveSet::between(const Outer& i, const Hold& held) const {
    return i.hold ? H_(i.hold->k, held.k) : i.family == held.family ? held.share : 0.0;
}

double ActiveSet::between(const Outer& i, const Outer& j) const {
    return j.hold ? between(i, *j.hold) : i.hold ? between(j, *i.hold) : 0.0;
}

void ActiveSet::add(const Entering& entering) {
    for (const Hold& one : entering.holds) hold(one);
    const Hold& last = entering.holds.back();
    if (last.share == 0.0 || active[last.family]) return;
    Outer own{last.family, {}, Numbers(inner_.size())};
    for (std::size_t a = 0; a < inner_.size(); ++a) own.entry[a] = between(own, inner_[a]);
    forward(own.entry);
    outer_.push_back(std::move(own));
    active[last.family] = 1;
    middle[last.family] = 0.0;
    stale_ = true;
}

void ActiveSet::hold(const Hold& one) {
    Numbers column(inner_.size(), 0.0);
    add_column(one.k, 1.0, column);
    forward(column);
    const double own = H_(one.k, one.k), pivot = own - dot(column.data(), column.data(), column.size());
    if (pivot > independent * own) {
        append(one, column, pivot);
    } else {
        outer_.push_back({one.family, one, std::move(column)});
    }
    side[one.k] = std::int8_t(one.side);
    stale_ = true;
}

void ActiveSet::append(const Hold& one, std::span<const double> column, double pivot) {
    const auto begin = std::find_if(column.begin(), column.end(), [](double entry) { return entry != 0.0; });
    Line line{int(begin - column.begin()), Numbers(begin, column.end())};
    line.entry.push_back(std::sqrt(pivot));
    for (Outer& outer : outer_) {
        const double left = between(outer, one) - dot(outer.entry.data(), column.data(), column.size());
        outer.entry.push_back(left / line.entry.back());
    }
    lines_.push_back(std::move(line));
    place_[one.k] = int(inner_.size());
    inner_.push_back(one);
}

int ActiveSet::drop(int k, const Hold* kept) {
    stale_ = true;
    side[k] = 0;
    int family;
    if (place_[k] >= 0) {
        family = inner_[place_[k]].family;
        remove_line(std::size_t(place_[k]));
        for (std::size_t j = 0; j < outer_.size(); ++j) {  // what depended on it may stand alone now
            if (!outer_[j].hold) continue;
            const Numbers& entry = outer_[j].entry;
            const double own = H_(outer_[j].hold->k, outer_[j].hold->k);
            const double pivot = own - dot(entry.data(), entry.data(), entry.size());
            if (!(pivot > independent * own)) continue;
            const Outer moved = std::move(outer_[j]);
            outer_.erase(outer_.begin() + std::ptrdiff_t(j--));
            append(*moved.hold, moved.entry, pivot);
        }
    } else {
        const auto outer =
            std::find_if(outer_.begin(), outer_.end(), [&](const Outer& one) { return one.hold && one.hold->k == k; });
        family = outer->family;
        outer_.erase(outer);
    }
    if (!active[family]) return family;
    bool above = kept && kept->family == family && kept->side > 0.0;
    bool below = kept && kept->family == family && kept->side < 0.0;
    for (int i = families_[family].begin; i < families_[family].end; ++i) {
        above = above || side[i] > 0;
        below = below || side[i] < 0;
    }
    if (above && below) return family;
    active[family] = 0;
    std::erase_if(outer_, [family](const Outer& one) { return one.family == family && !one.hold; });
    for (int i = families_[family].begin; i < families_[family].end; ++i) {
        if (side[i] != 0) drop(i);
    }
    return family;
}

// By a rotation of every two columns behind the row that goes.
void ActiveSet::remove_line(std::size_t gone) {
    struct Rotation {
        double cosine, sine;
        void turn(double& left, double& right) const {
            const double x = left;
            left = cosine * x + sine * right;
            right = cosine * right - sine * x;
        }
    };
    place_[inner_[gone].k] = -1;
    inner_.erase(inner_.begin() + std::ptrdiff_t(gone));
    for (std::size_t a = gone; a < inner_.size(); ++a) place_[inner_[a].k] = int(a);
    lines_.erase(lines_.begin() + std::ptrdiff_t(gone));
    const int from = int(gone), n = int(lines_.size());
    std::vector<Rotation> rotations;
    for (int a = from; a < n; ++a) {  // its entries go from `first` to a + 1
        Line& line = lines_[a];
        if (line.first > from) {
            line.entry.insert(line.entry.begin(), 0.0);
            --line.first;
        }
        const auto entry = [&line](int b) -> double& { return line.entry[b - line.first]; };
        for (int b = std::max(from, line.first); b < a; ++b) rotations[b - from].turn(entry(b), entry(b + 1));
        const double length = std::hypot(entry(a), entry(a + 1));
        rotations.push_back({entry(a) / length, entry(a + 1) / length});
        entry(a) = length;
        line.entry.pop_back();
    }
    for (Outer& outer : outer_) {
        for (int b = from; b < n; ++b) rotations[b - from].turn(outer.entry[b], outer.entry[b + 1]);
        outer.entry.pop_back();
    }
}

// x <- L^-1 x
void ActiveSet::forward(std::span<double> x) const {
    for (std::size_t a = 0; a < lines_.size(); ++a) {
        const Line& line = lines_[a];
        const std::size_t behind = line.entry.size() - 1;
        x[a] = (x[a] - dot(line.entry.data(), &x[line.first], behind)) / line.entry[behind];
    }
}

// Solve the linear system of all that is held, for the right-hand side in x_.
void ActiveSet::solve() {
    const std::size_t n = inner_.size();
    Numbers& x = x_;
    if (stale_) factor_border();
    forward(std::span(x).first(n));
    for (std::size_t j = 0; j < outer_.size(); ++j) x[n + j] -= dot(outer_[j].entry.data(), x.data(), n);
    solve_border(std::span(x).subspan(n));
    for (std::size_t j = 0; j < outer_.size(); ++j) {
        for (std::size_t a = 0; a < n; ++a) x[a] -= outer_[j].entry[a] * x[n + j];
    }
    for (std::size_t a = n; a-- > 0;) {
        const Line& line = lines_[a];
        const std::size_t behind = line.entry.size() - 1;
        x[a] /= line.entry[behind];
        for (std::size_t b = 0; b < behind; ++b) x[line.first + b] -= line.entry[b] * x[a];
    }
}

// What is left of the border's own block, scaled, by Gauss: it is indefinite.
void ActiveSet::factor_border() {
    const int m = int(outer_.size());
    const std::size_t n = inner_.size();
    scale_.assign(m, 1.0);
    for (int i = 0; i < m; ++i) {
        double size = 0.0;
        if (outer_[i].hold) {
            size = H_(outer_[i].hold->k, outer_[i].hold->k);
        } else {
            each([&](const Hold& one, double) {
                const double own = H_(one.k, one.k);
                if (one.family == outer_[i].family && own > 0.0) size += one.share * one.share / own;
            });
        }
        if (size > 0.0) scale_[i] = 1.0 / std::sqrt(size);
    }
    border_.resize(std::size_t(m) * m);
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j <= i; ++j) {
            const double left = between(outer_[i], outer_[j]) - dot(outer_[i].entry.data(), outer_[j].entry.data(), n);
            border_[i * m + j] = border_[j * m + i] = left * scale_[i] * scale_[j];
        }
    }
    pivot_.resize(m);
    for (int i = 0; i < m; ++i) {
        int best = i;
        for (int r = i + 1; r < m; ++r) {
            if (std::abs(border_[r * m + i]) > std::abs(border_[best * m + i])) best = r;
        }
        pivot_[i] = best;
        std::swap_ranges(&border_[i * m], &border_[i * m] + m, &border_[best * m]);
        if (border_[i * m + i] == 0.0) border_[i * m + i] = unit;
        for (int r = i + 1; r < m; ++r) {
            const double factor = border_[r * m + i] /= border_[i * m + i];
            if (factor == 0.0) continue;
            for (int c = i + 1; c < m; ++c) border_[r * m + c] -= factor * border_[i * m + c];
        }
    }
    stale_ = false;
}

void ActiveSet::solve_border(std::span<double> x) const {
    const int m = int(outer_.size());
    for (int i = 0; i < m; ++i) x[i] *= scale_[i];
    for (int i = 0; i < m; ++i) std::swap(x[i], x[pivot_[i]]);
    for (int i = 0; i < m; ++i) {
        for (int c = 0; c < i; ++c) x[i] -= border_[i * m + c] * x[c];
    }
    for (int i = m; i-- > 0;) {
        for (int c = i + 1; c < m; ++c) x[i] -= border_[i * m + c] * x[c];
        x[i] /= border_[i * m + i];
    }
    for (int i = 0; i < m; ++i) x[i] *= scale_[i];
}

bool ActiveSet::is_independent(const Entering& entering) {
    if (entering.holds.size() == 1) {
        const int k = entering.holds[0].k;
        Numbers column(inner_.size(), 0.0);
        add_column(k, 1.0, column);
        forward(column);
        if (H_(k, k) - dot(column.data(), column.data(), column.size()) > independent * H_(k, k)) return true;
    }
    return direction(entering) > dependent * own_square(entering);
}

double ActiveSet::own_square(const Entering& entering) const {
    double total = 0.0;
    for (std::size_t i = 0; i < entering.holds.size(); ++i) {
        for (std::size_t j = 0; j < entering.holds.size(); ++j) {
            total += entering.amount[i] * entering.amount[j] * H_(entering.holds[i].k, entering.holds[j].k);
        }
    }
    return total;
}

double ActiveSet::direction(const Entering& entering) {
    const std::size_t n = inner_.size();
    x_.assign(n + outer_.size(), 0.0);
    for (std::size_t i = 0; i < entering.holds.size(); ++i) {
        const Hold& one = entering.holds[i];
        const double amount = entering.amount[i];
        add_column(one.k, -amount, x_);
        for (std::size_t j = 0; j < outer_.size(); ++j) x_[n + j] -= amount * between(outer_[j], one);
    }
    const Numbers right = x_;
    solve();
    return own_square(entering) - dot(right.data(), x_.data(), right.size());
}

void ActiveSet::move_middles(double length) {
    for (std::size_t j = 0; j < outer_.size(); ++j) {
        if (!outer_[j].hold) middle[outer_[j].family] += length * x_[inner_.size() + j];
    }
}

void ActiveSet::settle(std::span<const double> b, std::span<double> nu, bool at) {
    constexpr int rounds = 3;  // of refinement: groups may be many decades apart
    const std::size_t n = inner_.size();
    std::fill(nu.begin(), nu.end(), 0.0);
    for (int round = 0; round < rounds; ++round) {
        q_.assign(b.begin(), b.end());
        H_.subtract(nu, q_);
        x_.assign(n + outer_.size(), 0.0);
        const auto left = [&](const Hold& one) {
            return q_[one.k] - one.share * middle[one.family] - (at ? one.at : 0.0);
        };
        Numbers balance(families_.size(), 0.0);
        each([&](const Hold& one, double) { balance[one.family] -= one.share * nu[one.k]; });
        for (std::size_t a = 0; a < n; ++a) x_[a] = left(inner_[a]);
        for (std::size_t j = 0; j < outer_.size(); ++j) {
            x_[n + j] = outer_[j].hold ? left(*outer_[j].hold) : balance[outer_[j].family];
        }
        solve();
        each([&](const Hold& one, double part) { nu[one.k] += part; });
        move_middles(1.0);
    }
}

namespace {

// The two statistics of a family by which it comes in, the one that is pushed down and the one that is pushed up.
Entering both(std::span<const Family> families, int f, int top, int bottom) {
    return {{Hold(top, f, families[f], 1.0), Hold(bottom, f, families[f], -1.0)}, {families[f].ratio, -1.0}};
}

Entering one(std::span<const Family> families, int f, int k, double side) {
    return {{Hold(k, f, families[f], side)}, {side}};
}

// Hold what has a multiplier; and, where asked for, every statistic of an equality.
void hold_all(ActiveSet& set, std::span<const Family> families, std::span<const bool> present,
              std::span<const double> nu, bool equalities) {
    for (int f = 0; f < int(families.size()); ++f) {
        const Family& family = families[f];
        const bool all = equalities && family.is_equality();
        const auto side_of = [&](int k) {
            return !present[k] ? 0.0 : nu[k] > 0.0 ? 1.0 : nu[k] < 0.0 ? -1.0 : double(all);
        };
        int top = -1, bottom = -1;
        for (int k = family.begin; k < family.end; ++k) {
            if (side_of(k) > 0.0 && top < 0) top = k;
            if (side_of(k) < 0.0 && bottom < 0) bottom = k;
        }
        if (family.kind != Kind::each) {
            for (int k = family.begin; all && bottom < 0 && k < family.end; ++k) {
                if (present[k] && k != top) bottom = k;
            }
            if (top < 0 || bottom < 0) continue;
            const Entering pair = both(families, f, top, bottom);
            if (!set.is_independent(pair)) continue;
            set.add(pair);
        }
        for (int k = family.begin; k < family.end; ++k) {
            if (side_of(k) == 0.0 || set.side[k] != 0) continue;
            const Entering single = one(families, f, k, side_of(k));
            if (set.is_independent(single)) set.add(single);
        }
    }
}

class SmallQp {
  public:
    SmallQp(const Gram& H, std::span<const double> b, std::span<const Family> families, std::span<const bool> present,
            std::span<const double> tolerance, std::span<double> nu)
        : H_(H),
          b_(b),
          families_(families),
          present_(present),
          tolerance_(tolerance),
          nu_(nu),
          set_(H, families),
          q_(b.size()),
          allowance_(b.size()),
          ignored_(families.size(), 0.0) {}

    QpOutcome run() {
        hold_all(set_, families_, present_, nu_, false);
        settle();
        bool settled = true;
        for (std::size_t round = 0; round < 20 * (b_.size() + 10); ++round) {
            measure();
            if (!most_violated()) {
                if (settled) return QpOutcome::solved;
                settle();
                settled = true;
            } else {
                settled = false;
                if (!enter()) return QpOutcome::conflict;
            }
        }
        return QpOutcome::exhausted;
    }

  private:
    // The multipliers of what is held, exactly rather than as a sum of steps. Those that have the wrong sign go.
    void settle() {
        for (std::vector<int> wrong{0}; !wrong.empty();) {
            set_.settle(b_, nu_, true);
            wrong.clear();
            set_.each([&](const Hold& held, double) {
                if (!held.equality && held.side * nu_[held.k] < 0.0) wrong.push_back(held.k);
            });
            for (const int k : wrong) {
                if (set_.side[k] != 0) drop(k, nullptr);
            }
        }
    }

    void drop(int k, const Hold* kept) {
        const int family = set_.drop(k, kept);
        for (int i = families_[family].begin; i < families_[family].end; ++i) {
            if (set_.side[i] == 0 && !(kept && kept->k == i)) nu_[i] = 0.0;
        }
    }

    // q = b - H nu, and how exactly it is known.
    void measure() {
        std::copy(b_.begin(), b_.end(), q_.begin());
        for (std::size_t k = 0; k < b_.size(); ++k) allowance_[k] = std::abs(b_[k]);
        H_.subtract(nu_, q_, allowance_);
        for (std::size_t k = 0; k < b_.size(); ++k) {
            allowance_[k] = std::max(tolerance_[k], 8.0 * unit * allowance_[k]);
        }
    }

    double breach(const Entering& row) const {
        double total = 0.0;
        for (std::size_t i = 0; i < row.holds.size(); ++i) {
            const Hold& held = row.holds[i];
            total += row.amount[i] * (q_[held.k] - held.share * set_.middle[held.family] - held.at);
        }
        return total;
    }

    // Have the most violated row enter, as a multiple of what it is known to; false where none is.
    bool most_violated() {
        double worst = 1.0;
        bool found = false;
        const auto consider = [&](int f, double allowed, auto make) {
            const Entering row = make();
            const double beyond = breach(row);
            if (!(beyond > std::max(allowed, 2.0 * ignored_[f]) && beyond > worst * allowed)) return;
            worst = beyond / allowed;
            entering_ = row;
            allowed_ = allowed;
            found = true;
        };
        for (int f = 0; f < int(families_.size()); ++f) {
            const Family& family = families_[f];
            const Extremes at(family, present_, q_);
            if (at.greatest < 0 || (family.kind != Kind::each && at.greatest == at.least)) continue;
            const bool compared = family.kind != Kind::each;
            const double allowed = allowance_[at.greatest] + (compared ? allowance_[at.least] : 0.0);
            if (compared && !set_.active[f]) {
                consider(f, allowed, [&] { return both(families_, f, at.greatest, at.least); });
                continue;
            }
            for (const double side : {1.0, -1.0}) {
                const int k = side > 0.0 ? at.greatest : at.least;
                // Held on one side, it leaves the other only by rounding or, of ratios, below 0, where no output is.
                if (set_.side[k] != 0) continue;
                consider(f, allowed, [&] { return one(families_, f, k, side); });
            }
        }
        return found;
    }

    // False where the row contradicts what is held: then nu is the contradiction.
    bool enter() {
        const double own = set_.own_square(entering_), begun = breach(entering_);
        const Hold* alone = entering_.holds.size() == 1 ? &entering_.holds[0] : nullptr;
        for (double multiplier = 0.0;;) {
            const double distance = set_.direction(entering_);
            int blocking = -1;
            double shortest = infinity;
            set_.each([&](const Hold& held, double change) {
                const double falls = -held.side * change;
                if (held.equality || !(falls > 1e-14)) return;
                const double length = std::max(held.side * nu_[held.k], 0.0) / falls;
                if (length < shortest) {
                    blocking = held.k;
                    shortest = length;
                }
            });
            const double full = distance > dependent * own ? std::max(breach(entering_), 0.0) / distance : infinity;
            const double length = std::min(shortest, full);
            if (length == infinity) {
                const int family = entering_.holds[0].family;
                if (multiplier == 0.0 && begun <= rounding * allowed_) {
                    ignored_[family] = begun;  // what is held implies it, up to rounding
                    return true;
                }
                std::fill(nu_.begin(), nu_.end(), 0.0);
                move(1.0);
                return false;
            }
            move(length);
            set_.move_middles(length);
            multiplier += length;
            measure();
            if (full <= shortest) {
                set_.add(entering_);
                const Hold& last = entering_.holds.back();
                if (!alone) set_.middle[last.family] = q_[last.k] - last.at;
                return true;
            }
            drop(blocking, alone);
            if (alone && alone->share != 0.0 && !set_.active[alone->family]) {  // rounding took all of its family
                nu_[alone->k] = 0.0;
                return true;
            }
        }
    }

    void move(double length) {
        set_.each([&](const Hold& held, double change) { nu_[held.k] += length * change; });
        for (std::size_t i = 0; i < entering_.holds.size(); ++i) {
            nu_[entering_.holds[i].k] += length * entering_.amount[i];
        }
    }

    const Gram& H_;
    std::span<const double> b_;
    std::span<const Family> families_;
    std::span<const bool> present_;
    std::span<const double> tolerance_;
    std::span<double> nu_;
    ActiveSet set_;
    Numbers q_, allowance_, ignored_;
    Entering entering_;
    double allowed_ = 0.0;
};

}  // namespace

QpOutcome solve_qp(const Gram& H, std::span<const double> b, std::span<const Family> families,
                   std::span<const bool> present, std::span<const double> tolerance, std::span<double> nu) {
    return SmallQp(H, b, families, present, tolerance, nu).run();
}

Numbers solve_active(const Rows& rows, std::span<const double> nu, const Gram& H, std::span<const double> q) {
    Numbers v(rows.statistics());
    ActiveSet set(H, rows.families);
    hold_all(set, rows.families, rows.present, nu, true);
    set.settle(q, v, false);
    return v;
}

}  // namespace fairlayer
