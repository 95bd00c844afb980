#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

/// The blocks of skeleton.html, of which pages are made.
namespace tsdiag::reports {

/// The lines after `@@ block` with {{name}} replaced by its value, which is HTML already.  Throws
/// `BrokenInvariant` for a block, or a name, that the file does not have.
std::string filled(std::string_view block,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> values);

}  // namespace tsdiag::reports
