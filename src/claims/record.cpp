#include "tsdiag/claim_record.hpp"
#include "tsdiag/units.hpp"

namespace tsdiag {
namespace {

template <class Enum>
Enum read_enum(RecordReader& in, Enum last) {
    const std::uint64_t number = in.count();
    if (number > std::uint64_t(last)) in.refuse("has an unknown word");
    return Enum(number);
}

void write(RecordWriter& out, const Trace& trace) {
    out.text(trace.x_title);
    out.text(trace.y_title);
    out.flag(trace.log_x);
    out.flag(trace.log_y);
    for (const auto* values : {&trace.x, &trace.y, &trace.low, &trace.high, &trace.claimed})
        out.reals(*values);
}

Trace read_trace(RecordReader& in) {
    Trace trace;
    trace.x_title = in.text();
    trace.y_title = in.text();
    trace.log_x = in.flag();
    trace.log_y = in.flag();
    for (auto* values : {&trace.x, &trace.y, &trace.low, &trace.high, &trace.claimed})
        *values = in.reals();
    const auto fits = [&](const std::vector<double>& values, bool may_be_empty) {
        return values.size() == trace.y.size() || (may_be_empty && values.empty());
    };
    if (!fits(trace.x, false) || !fits(trace.low, true) || !fits(trace.high, true) ||
        !fits(trace.claimed, true))
        in.refuse("has columns of different lengths");
    return trace;
}

void write(RecordWriter& out, const Reading& r) {
    out.text(r.name);
    out.text(r.formula);
    out.count(std::uint64_t(r.role));
    out.count(std::uint64_t(r.verdict));
    for (const auto& number : {r.measured, r.bound, r.tightness, r.low, r.high}) out.real(number);
    out.real(r.resolution);
    out.index(r.trials);
    out.index(r.steps);
    out.text(r.note);
    out.count(r.hypotheses.size());
    for (const Asked& asked : r.hypotheses) {
        out.text(asked.name);
        out.text(asked.unmet);
    }
    out.text(r.mutant);
    out.text(r.of);
    out.count(r.witness.size());
    for (const NamedMatrix& m : r.witness) {
        out.text(m.name);
        out.index(m.rows);
        out.index(m.cols);
        out.reals(m.values);
    }
    out.flag(r.replay.has_value());
    if (r.replay) {
        out.count(r.replay->seed);
        out.text(r.replay->part);
        out.index(r.replay->trial);
    }
    write(out, r.trace);
}

NamedMatrix read_matrix(RecordReader& in) {
    NamedMatrix m;
    m.name = in.text();
    m.rows = in.index();
    m.cols = in.index();
    m.values = in.reals();
    const Index count = std::ssize(m.values);
    const bool fits = m.rows > 0 && m.cols > 0 ? count % m.rows == 0 && count / m.rows == m.cols
                                               : count == 0 && m.rows >= 0 && m.cols >= 0;
    if (!fits) in.refuse("has a matrix of another size than its own");
    return m;
}

Reading read_reading(RecordReader& in) {
    Reading r;
    r.name = in.text();
    r.formula = in.text();
    r.role = read_enum(in, Role::sharper);
    r.verdict = read_enum(in, Verdict::hypothesis_not_met);
    for (auto* number : {&r.measured, &r.bound, &r.tightness, &r.low, &r.high})
        *number = in.maybe_real();
    r.resolution = in.real();
    r.trials = in.index();
    r.steps = in.index();
    r.note = in.text();
    constexpr std::size_t least_asked = 2, least_matrix = 4;  // bytes
    for (std::size_t left = in.length(least_asked); left > 0; --left) {
        std::string name = in.text();
        r.hypotheses.push_back({std::move(name), in.text()});
    }
    r.mutant = in.text();
    r.of = in.text();
    for (std::size_t left = in.length(least_matrix); left > 0; --left)
        r.witness.push_back(read_matrix(in));
    if (in.flag()) {
        Replay replay;
        replay.seed = in.count();
        replay.part = in.text();
        replay.trial = in.index();
        r.replay = std::move(replay);
    }
    r.trace = read_trace(in);
    return r;
}

}  // namespace

std::string claim_record(const Examined& examined) {
    RecordWriter out;
    out.count(std::uint64_t(examined.verdict));
    for (const auto* readings : {&examined.readings, &examined.controls}) {
        out.count(readings->size());
        for (const Reading& reading : *readings) write(out, reading);
    }
    return out.take();
}

Examined read_claim_record(std::string_view record, const Claim& claim,
                           const CheckSettings& settings) {
    constexpr std::size_t least_reading = 24;  // bytes
    RecordReader in(record, "a finished unit");
    Examined e{.claim = &claim, .how = plan(claim, settings)};
    e.verdict = read_enum(in, Verdict::hypothesis_not_met);
    for (auto* readings : {&e.readings, &e.controls})
        for (std::size_t left = in.length(least_reading); left > 0; --left)
            readings->push_back(read_reading(in));
    in.end();
    return e;
}

}  // namespace tsdiag
