#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "failure.hpp"
#include "tsdiag/json.hpp"

/// What the commands print with --json.
namespace tsdiag::cli {

struct JsonKey {
    std::string_view name;
    std::string_view type;  ///< text, number, integer, boolean, list, object; "or null"
    std::string_view meaning;
    bool always = true;  ///< else only where it applies
};
/// Of one command.
struct JsonOutput {
    std::string_view command;
    std::string_view prints;  ///< "an object", "a list of objects", "an object per line"
    std::vector<JsonKey> keys;
};
/// One for every command.  Objects that are printed whole begin with `tsdiag`, `command`, `output`
/// and `version`, which are not repeated here.
std::span<const JsonOutput> json_outputs();
constexpr int json_version = 1;  ///< raised where a key changes its meaning or goes

/// With --json, prints the object of a command; else nothing.  `line`: without line breaks.
void print_json(std::string_view command, const Json& body, bool line = false);
/// The sentence of a failure, if it has one, on standard error; with --json as an object, too.
void tell(const Failure& failure);
/// With --json, prints the list of objects of a command, without a head; else nothing.
void print_json_list(std::string_view command, Json::Array all);

/// The table of docs/json.md: `tsdiag list outputs`.
std::string json_outputs_markdown();

}  // namespace tsdiag::cli
