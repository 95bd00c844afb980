#include <algorithm>
#include <cstring>
#include <functional>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "visible.hpp"

namespace tsdiag {
namespace {

void require_rows(const char* what, const Tensor& x, Index n, Index block_rows) {
    if (x.rows() != n)
        throw ShapeError(std::string(what) + ": the operand has " + std::to_string(x.rows()) +
                         " rows, expected one for each of the " + std::to_string(n) + " tokens");
    if (block_rows < 1)
        throw ShapeError(std::string(what) + ": a row block of " + std::to_string(block_rows) +
                         " rows, expected at least 1");
}

constexpr Index sampled_rows = 512, sampled_block = 8;
constexpr Index sampled_entries = Index{1} << 23;  // of a block, over all heads

}  // namespace

double AttentionOperator::bytes() const {
    return double(heads()) * double(tokens()) * double(columns()) * double(bytes_of(type()));
}

Index AttentionOperator::rows_at_once(double memory) const {
    constexpr double worth_keys = 64;
    const double row = 3 * bytes() / double(tokens());
    const double rows = std::min(memory, std::max(backend().working_set(), worth_keys * row)) / row;
    const Index part = backend().host_memory() ? rows_of_a_product(row) : 1;
    return std::min(tokens(), std::max(part, Index(rows) / part * part));
}

Index rows_of_a_product(double row_bytes) {
    constexpr double bytes = 16 << 20;
    Index rows = 96;
    while (rows > 12 && double(rows) * row_bytes > bytes) rows /= 2;
    return rows;
}

namespace {

/// Multiples of what one product takes; enough of them for a team, and few enough that adding a
/// vector a panel costs nothing beside the panel.
Index rows_of_panel(Index n, bool host) {
    constexpr Index most = 128, part = 96, least_parts = 4, least_parts_of_device = 32;
    const Index parts = (n + part - 1) / part;
    const Index rows =
        std::max(host ? least_parts : least_parts_of_device, (parts + most - 1) / most);
    return std::clamp<Index>(part * rows, 1, std::max<Index>(1, n));
}

}  // namespace

Panels::Panels(Index n) : n_(n), rows_(rows_of_panel(n, true)) {}

Panels::Panels(const AttentionOperator& p, bool whole)
    : n_(p.tokens()), rows_(whole ? n_ : rows_of_panel(n_, p.backend().host_memory())) {
    if (count() > 1) team_ = p.team();
}

Panels::Range Panels::operator[](Index panel) const {
    return {panel * rows_, std::min(rows_, n_ - panel * rows_)};
}

Index Panels::own(Index round) const {
    const Index panel = first(round) + (team_ ? team_->rank() : 0);
    return panel < count() ? panel : -1;
}

void complete_rows(const AttentionOperator& p, std::size_t row_bytes, std::span<char> x) {
    const Panels panels(p);
    if (!panels.team()) return;
    constexpr std::size_t message = 16 << 20;
    const auto h = std::size_t(p.heads()), n = std::size_t(p.tokens());
    const std::size_t panel_bytes = h * std::size_t(panels[0].count) * row_bytes;
    const Index at_once =
        std::max<Index>(1, Index(message / std::max<std::size_t>(1, panel_bytes)));
    // Copies the panels of a member in some rounds between `x` and `bytes`, which it empties.
    const auto move = [&](Index from, Index to, int member, std::string& bytes, bool out) {
        std::size_t at = 0;
        for (Index round = from; round < to && member < panels.members(round); ++round) {
            const auto [first, count] = panels[panels.first(round) + member];
            const std::size_t size = std::size_t(count) * row_bytes;
            for (std::size_t k = 0; k < h; ++k, at += size) {
                char* place = x.data() + (k * n + std::size_t(first)) * row_bytes;
                out ? void(bytes.append(place, size)) : void(std::memcpy(place, &bytes[at], size));
            }
        }
    };
    for (Index from = 0; from < panels.rounds(); from += at_once) {
        const Index to = std::min(panels.rounds(), from + at_once);
        std::string own;
        move(from, to, panels.team()->rank(), own, true);
        std::vector<std::string> all = panels.team()->gather(own);
        for (int member = 0; member < panels.team()->size(); ++member)
            if (member != panels.team()->rank())
                move(from, to, member, all[std::size_t(member)], false);
    }
}

bool AttentionOperator::sampled() const {
    return tokens() > largest_seen_whole && structure().factors;
}

/// One block from each of as many equal parts, so that every row is equally likely.
void AttentionOperator::show_sample(const RowVisitor& visit) const {
    const Index n = tokens();
    const Index block = std::clamp<Index>(sampled_entries / (heads() * n), 1, sampled_block);
    const Index blocks = (n + block - 1) / block, parts = sampled_rows / block;
    std::shared_ptr<const RowTotals> totals;
    if (std::optional<RowTotals> all = row_totals())
        totals = std::make_shared<const RowTotals>(std::move(*all));
    Rng rng = rows_rng_.fork("sampled rows");
    for (Index part = 0; part < parts; ++part) {
        const Index from = part * blocks / parts, to = (part + 1) * blocks / parts;
        const Index first = block * (from + Index(rng.below(std::uint64_t(to - from))));
        RowBlock shown = rows(first, std::min(block, n - first));
        shown.totals = totals;
        visit(shown);
    }
}

Tensor AttentionOperator::apply(const Tensor& v, Index block_rows, const RowVisitor& visit) const {
    const Index n = tokens(), h = heads(), keys = columns();
    require_rows("attention apply", v, keys, block_rows);
    if (v.batch() < 1 || h % v.batch() != 0)
        throw ShapeError("attention apply: values of " + std::to_string(v.batch()) +
                         " heads, expected a divisor of " + std::to_string(h));
    const bool sample = sampled();
    bool gather = keep_ && !matrix_.defined() && !sample;
    if (visit && sample) show_sample(visit);
    if (sample || (!visit && !gather))
        if (Tensor y = product(v); y.defined()) return y;
    const Panels panels(*this, v.tracked() || (!visit && !team_));
    const Tensor out = Tensor::empty(backend(), {h, n, v.cols()}, v.type());
    std::vector<Tensor> recorded;  // of a gradient: the rows are no longer to be written into `out`
    Tensor kept;
    if (gather && (block_rows < n || panels.count() > 1)) {
        try {
            kept = Tensor::empty(backend(), {h, n, keys}, type());
        } catch (const OutOfMemory&) {
            if (team_) throw;  // the others keep it
            note_shortage("P was not kept");
            gather = false;
        }
    }
    // Rows first, ... of the panel that ends at `end`; returns their number.
    const auto add_rows = [&](Index first, Index end, const std::function<void(RowBlock&)>& seen) {
        const Index count = std::min(block_rows, end - first);
        RowBlock block;
        try {
            block = rows(first, count);
            if (block.p.tracked() || v.tracked()) {
                const Index last = visibility::end(block.visible, keys);
                recorded.push_back(matmul(block.p.col_range(0, last), v.row_range(0, last)));
            } else {
                visibility::each_part(
                    *this, block.visible, first, count, [&](Index i, Index rows, Index last) {
                        backend().matmul(out.row_range(first + i, rows).view(),
                                         block.p.row_range(i, rows).col_range(0, last).view(),
                                         v.row_range(0, last).view(), Transpose::none, 1);
                    });
            }
        } catch (const OutOfMemory&) {
            const bool not_kept = gather && !kept.defined();  // as P is by the rest of a team
            if (count == 1 || (team_ && not_kept)) throw;
            block_rows = (count + 1) / 2;
            note_shortage("blocks of rows of P were halved");
            gather = gather && !not_kept;
            return Index(0);
        }
        block.ends_panel = first + count == end;
        if (seen) seen(block);
        if (gather && count == n)
            kept = block.p;
        else if (gather)
            backend().unary(Unary::copy, kept.row_range(first, count).view(), block.p.view());
        return count;
    };
    const bool all = gather;  // P is kept by every member of a team
    for (Index round = 0; round < panels.rounds(); ++round) {
        const auto show = [&](RowBlock& block) {
            block.team = panels.team();
            if (block.team && block.ends_panel) block.members = panels.members(round);
            block.ends_rounds = round + 1 == panels.rounds();
            visit(block);
        };
        const Index own = panels.own(round);
        for (int member = 0; member < panels.members(round); ++member) {
            const Index panel = panels.first(round) + member;
            if (!all && panel != own) continue;
            const auto [begin, count] = panels[panel];
            for (Index i = 0; i < count;)
                i += add_rows(
                    begin + i, begin + count,
                    visit && panel == own ? std::function<void(RowBlock&)>(show) : nullptr);
        }
        if (visit && own < 0) {
            RowBlock none = rows(0, 1);
            show(none);
        }
    }
    if (gather) matrix_ = kept;
    if (recorded.size() == 1) return recorded.front();
    if (!recorded.empty()) return concat_rows(recorded);
    return panels.team() && !all ? complete(out) : out;
}

Tensor AttentionOperator::complete(const Tensor& own) const {
    const auto with = [&]<class T>(T) {
        if (backend().host_memory()) {
            complete_rows(*this,
                          std::span(own.view().row<T>(0, 0), std::size_t(own.shape().count())));
            return own;
        }
        std::vector<T> values = own.to_host<T>();
        complete_rows(*this, std::span(values));
        return Tensor::from_host(backend(), own.shape(), std::span<const T>(values), own.type());
    };
    return own.type() == Type::f32 ? with(float{}) : with(double{});
}

Tensor AttentionOperator::apply_transpose(const Tensor& w, Index block_rows) const {
    const Index n = tokens();
    require_rows("attention apply_transpose", w, n, block_rows);
    if (w.batch() != heads())
        throw ShapeError("attention apply_transpose: an operand of " + std::to_string(w.batch()) +
                         " heads, expected " + std::to_string(heads()));
    if (Tensor y = transposed_product(w); y.defined()) return y;
    Tensor sum;
    for (Index first = 0; first < n; first += block_rows) {
        const Index count = std::min(block_rows, n - first);
        const Tensor part =
            matmul(entries(first, count), w.row_range(first, count), Transpose::first);
        sum = sum.defined() ? add(sum, part) : part;
    }
    return sum;
}

Tensor AttentionOperator::product(const Tensor&) const { return {}; }
Tensor AttentionOperator::transposed_product(const Tensor&) const { return {}; }

Tensor AttentionOperator::entries(Index first, Index count) const {
    return matrix_.defined() ? matrix_.row_range(first, count) : rows(first, count).p;
}

const Tensor& AttentionOperator::matrix() const {
    if (!matrix_.defined()) matrix_ = contiguous(rows(0, tokens()).p);
    return matrix_;
}

Tensor AttentionOperator::matrix_on_host() const {
    const Tensor& p = matrix();
    if (p.backend().host_memory()) return p;
    const auto copied = [&]<class T>(T) {
        return Tensor::from_host(cpu(), p.shape(), std::span<const T>(p.to_host<T>()), p.type());
    };
    if (!on_host_.defined()) on_host_ = p.type() == Type::f32 ? copied(float{}) : copied(double{});
    return on_host_;
}

}  // namespace tsdiag
