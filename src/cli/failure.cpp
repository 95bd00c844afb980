#include "failure.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <stdexcept>

#include "terminal.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::cli {
namespace {

constexpr const char* no_memory =
    "out of memory; choose smaller sizes, or limit memory with --memory.";

}  // namespace

Failure current_failure() {
    try {
        throw;
    } catch (const Closed&) {
        return {};
    } catch (const UsageError& error) {
        return {usage, error.what()};
    } catch (const NotAvailable& error) {
        return {not_available, error.what()};
    } catch (const BrokenInvariant& error) {
        return {failed, error.what()};
    } catch (const std::bad_alloc&) {
        return {bad_input, no_memory};
    } catch (const std::length_error&) {  // more elements than a vector can have
        return {bad_input, no_memory};
    } catch (const std::filesystem::filesystem_error& error) {
        return {bad_input, fmt::format("{}: {}.", error.path1().string(), error.code().message())};
    } catch (const std::exception& error) {
        return {bad_input, error.what()};
    }
}

}  // namespace tsdiag::cli
