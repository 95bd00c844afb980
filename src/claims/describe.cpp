#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tsdiag/claim.hpp"

/// docs/statements.md: statements, hypotheses and results of the examination.
namespace tsdiag {
namespace {

constexpr std::size_t most_shown = 24;  // entries of a witness

/// Text of a cell of a table.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '|') out += '\\';
        out += c;
    }
    return out;
}

std::string numbers(const NamedMatrix& m) {
    std::string text = m.name + " = [";
    for (std::size_t i = 0; i < m.values.size(); ++i) {
        const bool row_begins = i > 0 && Index(i) % m.cols == 0;
        text += fmt::format("{}{:.6g}", i == 0 ? "" : row_begins ? "; " : " ", m.values[i]);
    }
    return text + "]";
}

/// The witness of a violated reading, where it can be checked by hand.
std::string witness(const Reading& r) {
    if (r.verdict != Verdict::false_as_stated) return "";
    std::size_t entries = 0;
    for (const NamedMatrix& m : r.witness) entries += m.values.size();
    if (r.witness.empty() || entries > most_shown) return "its interval";
    std::string text;
    for (const NamedMatrix& m : r.witness) text += (text.empty() ? "" : ", ") + numbers(m);
    return text;
}

bool holding(const Reading& r) {
    return r.verdict == Verdict::holds || r.verdict == Verdict::holds_asymptotically;
}

std::string row(const Reading& r) {
    return fmt::format("| {}{} | {} | {} | {} | {} |\n", cell(r.name),
                       r.role == Role::sharper ? " \\*" : "", cell(r.formula), name(r.verdict),
                       cell(witness(r)), holding(r) ? cell(r.mutant) : "");
}

/// Anchor of a heading, as forges make it: lower case, without dots.
std::string anchor(std::string_view name) {
    std::string text;
    for (const char c : name)
        if (c != '.') text += char(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

std::string hypotheses(const Claim& claim) {
    std::string text;
    for (const Hypothesis* h : claim.hypotheses)
        if (h) text += (text.empty() ? "" : ", ") + std::string(h->name);
    return text;
}

std::string section(const Examined& e) {
    const Claim& c = *e.claim;
    std::string out = fmt::format("## {}\n\n{}\n\nSource: {}.\n", c.name, c.statement, c.source);
    const auto add = [&](std::string_view head, std::string_view text) {
        if (!text.empty()) out += fmt::format("\n{}: {}\n", head, text);
    };
    if (!c.words.empty()) add("In the paper's words", fmt::format("\"{}\"", c.words));
    add("Assumes", c.assumes);
    add("Conditions on the drawn entries", hypotheses(c));
    add("Proof", c.proof);
    add("Sharp form", c.sharp);
    add("Not attained", c.loose);
    out += fmt::format("\nVerdict: {}.\n", name(e.verdict));
    out +=
        "\n| reading | formula | verdict | counterexample | mutant that fails |\n"
        "|---|---|---|---|---|\n";
    for (const Reading& r : e.readings) out += row(r);
    std::string controls;
    for (const Reading& r : e.controls)
        controls += fmt::format(
            "{}{}{}: {}", controls.empty() ? "" : "; ", r.name,
            r.of.empty() || r.name.starts_with(r.of) ? "" : fmt::format(" (of {})", r.of),
            control_outcome(r));
    add("Controls", controls + ".");
    return out + "\n";
}

/// A displayed equation, lemma or remark of a paper for which there is no claim.
struct Unclaimed {
    const char *where, *why;
};
constexpr Unclaimed unclaimed[] = {
    {"[DEVIL] (1) to (6), (13), (14), (17), (28) to (36), (40), (51), (54); Def. D.1 to D.3",
     "definitions of X, Q, K, V, attentions, h, c1 to c3, U and R, which the claims use"},
    {"[DEVIL] (16)",
     "definitions of c1 and c2; that c1 is finite is devil.propD5; that c2 is finite is stated "
     "without proof"},
    {"[DEVIL] (38), (39), (67)", "one-line proofs of (37) and (41)"},
    {"[DEVIL] (62), the network of App. D.3 and its backward pass",
     "a definition and the chain rule; tests compare that backward pass with finite differences"},
    {"[POLY] (1) to (5), (12), (19), (23), (25)", "definitions and rearrangements"},
    {"[POLY] (13) to (18)",
     "the steps of (6), which poly.thm4.1a tests as a whole; (13) and (15) repeat the exponent "
     "a_11 where a_1n is meant"},
    {"[POLY] Remark 4.6", "an observation in training runs: experiments poly.fig1 and poly.fig2"},
    {"[POLY] (44) to (52), (57) to (64), (72) to (77)",
     "rearrangements of the sums of (55) and (71), and equations of other tasks"},
    {"[TSE] Assumption 2.1, (2), (5), (7), (10), (12), (14), (19), Algorithm 1",
     "definitions, which the claims use"},
    {"[TSE] (8)", "the mean of (6) over W, which the identity of tse.prop2.5 contains"},
    {"[TSE] section 2.4, Estimates 1 and 2", "the factors of (16) and (17): experiment tse.fig3"},
    {"[TSE] App. A.3, Delta > 0",
     "the gap of tse.prop2.5, which is nonnegative, and positive if the left side of (15) is"},
    {"[TSE] App. A.1, A.2 and A.4, the displays of proofs",
     "steps to (9), (11), (23) and (29), which are claims"},
};

std::string without_claim() {
    std::string out = "## Without a claim\n\n| displayed | reason |\n|---|---|\n";
    for (const Unclaimed& u : unclaimed)
        out += fmt::format("| {} | {} |\n", cell(u.where), cell(u.why));
    return out;
}

}  // namespace

std::string statements_markdown(std::span<const Examined> examined) {
    std::string out =
        "# Statements\n\n"
        "Written by `tsdiag check --markdown`, which examines every claim of "
        "`src/claims/claims.cpp` at its own sizes with seed 0; a test compares the two.\n"
        "*Holds* means: no counterexample in the draws and search steps, whose numbers `tsdiag "
        "check` prints. This is not a proof; short proofs are named.  A reading with a star is "
        "sharper than the statement and is not counted.  The mutant of a reading is a change of "
        "the claimed side that the same examination finds false; a control breaks a hypothesis and "
        "must be found false.\n"
        "Hypotheses on the drawn matrices (row sums, signs, omega + delta < 1, distribution and "
        "scale of the entries) hold by construction or are checked for each draw, step and "
        "counterexample; a test checks them for the matrices shown.  Not checked: that entries are "
        "independent with mean 0, which every `--dist` gives by construction (a test measures it); "
        "and that a size is \"large\" or \"fixed\"; `tsdiag check` prints the sizes used.\n"
        "Sources are keys of [references.md](references.md).\n\n"
        "| claim | source | conditions on the entries | verdict | controls found false |\n"
        "|---|---|---|---|---|\n";
    for (const Examined& e : examined) {
        const auto found =
            std::ranges::count(e.controls, Verdict::false_as_stated, &Reading::verdict);
        out += fmt::format("| [{0}](#{1}) | {2} | {3} | {4} | {5} of {6} |\n", e.claim->name,
                           anchor(e.claim->name), e.claim->source, hypotheses(*e.claim),
                           name(e.verdict), found, e.controls.size());
    }
    out += "\n";
    for (const Examined& e : examined) out += section(e);
    return out + without_claim();
}

}  // namespace tsdiag
