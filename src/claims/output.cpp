#include "tsdiag/claim.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/run_record.hpp"

namespace tsdiag {
namespace {

constexpr std::string_view header =
    "name,reading,role,verdict,measured,bound,tightness,low,high,trials,steps,note";

Json or_null(std::optional<double> value) { return value ? Json(*value) : Json(); }

std::string_view name(Role role) {
    return role == Role::part             ? "part"
           : role == Role::interpretation ? "interpretation"
                                          : "sharper";
}

Json matrix_json(const NamedMatrix& m) {
    Json::Array rows;
    for (Index i = 0; i < m.rows; ++i) {
        Json::Array row;
        for (Index j = 0; j < m.cols; ++j) row.emplace_back(m.values[std::size_t(i * m.cols + j)]);
        rows.emplace_back(std::move(row));
    }
    Json json;
    return json.set("name", m.name).set("rows", std::move(rows));
}

Json hypothesis_json(const Asked& h) {
    Json json;
    return json.set("name", h.name).set("met", h.unmet.empty()).set("unmet", h.unmet);
}

Json reading_json(const Reading& r) {
    Json json;
    json.set("reading", r.name).set("formula", r.formula).set("role", name(r.role));
    json.set("verdict", name(r.verdict)).set("measured", or_null(r.measured));
    json.set("bound", or_null(r.bound)).set("tightness", or_null(r.tightness));
    json.set("low", or_null(r.low)).set("high", or_null(r.high)).set("trials", r.trials);
    if (r.resolution > 0) json.set("resolution", r.resolution);
    json.set("steps", r.steps).set("note", r.note);
    Json::Array hypotheses;
    for (const Asked& h : r.hypotheses) hypotheses.push_back(hypothesis_json(h));
    json.set("hypotheses", std::move(hypotheses)).set("mutant", r.mutant);
    if (!r.of.empty()) json.set("of", r.of);
    Json::Array witness;
    for (const NamedMatrix& m : r.witness) witness.push_back(matrix_json(m));
    json.set("witness", std::move(witness));
    if (r.replay)
        json.set("replay", Json(Json::Object{{"seed", Json(r.replay->seed)},
                                             {"part", Json(r.replay->part)},
                                             {"trial", Json(r.replay->trial)}}));
    return json;
}

/// The claim's hypotheses, each with the distributions that meet it at these sizes.
Json admitted_json(const Claim& claim, Check how) {
    Json::Array all;
    for (const Hypothesis* h : claim.hypotheses) {
        if (!h) continue;
        Json json = hypothesis_json({std::string(h->name), h->unmet(how)});
        Json::Array admits;
        Check other = how;
        for (const Distribution d : distributions()) {
            other.distribution = d;
            if (h->unmet(other).empty()) admits.emplace_back(std::string(name(d)));
        }
        all.push_back(json.set("admits", std::move(admits)));
    }
    return Json(std::move(all));
}

Json claim_json(const Examined& e) {
    Json json;
    json.set("name", e.claim->name).set("statement", e.claim->statement);
    json.set("words", e.claim->words)
        .set("source", e.claim->source)
        .set("assumes", e.claim->assumes);
    json.set("sharp", e.claim->sharp).set("verdict", name(e.verdict));
    json.set("n", e.how.n).set("d", e.how.d).set("heads", e.how.heads).set("trials", e.how.trials);
    json.set("hypotheses", admitted_json(*e.claim, e.how)).set("proof", e.claim->proof);
    const auto list = [](const std::vector<Reading>& readings) {
        Json::Array array;
        for (const Reading& r : readings) array.push_back(reading_json(r));
        return array;
    };
    return json.set("readings", list(e.readings)).set("controls", list(e.controls));
}

}  // namespace

std::vector<ClaimRow> claim_rows(std::span<const Examined> examined) {
    std::vector<ClaimRow> rows;
    for (const Examined& e : examined) {
        rows.push_back({.name = std::string(e.claim->name),
                        .role = "claim",
                        .verdict = std::string(name(e.verdict)),
                        .trials = e.how.trials});
        const auto add = [&](const Reading& r, std::string_view role) {
            rows.push_back({std::string(e.claim->name), r.name, std::string(role),
                            std::string(name(r.verdict)), r.measured, r.bound, r.tightness, r.low,
                            r.high, r.trials, r.steps, r.note});
        };
        for (const Reading& r : e.readings) add(r, name(r.role));
        for (const Reading& r : e.controls) add(r, "control");
    }
    return rows;
}

std::string claims_csv(const std::vector<ClaimRow>& rows) {
    std::string out(header);
    out += '\n';
    for (const ClaimRow& r : rows)
        CsvLine(out)
            .text(r.name)
            .text(r.reading)
            .text(r.role)
            .text(r.verdict)
            .number(r.measured)
            .number(r.bound)
            .number(r.tightness)
            .number(r.low)
            .number(r.high)
            .index(r.trials)
            .index(r.steps)
            .text(r.note)
            .end();
    return out;
}

Json claims_json(std::span<const Examined> examined, const CheckSettings& settings) {
    RunRecord run;
    run.seed = settings.seed;
    run.confidence = settings.confidence;
    run.distribution = name(settings.distribution);
    Json::Array all;
    for (const Examined& e : examined) all.push_back(claim_json(e));
    run.claims = std::move(all);
    return run.json();
}

}  // namespace tsdiag
