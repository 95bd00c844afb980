#include "../../reports/skeleton.hpp"

#include <gtest/gtest.h>

#include "tsdiag/error.hpp"

namespace tsdiag::reports {
namespace {

TEST(Skeleton, HasWhatIsPutIntoItAndNothingElse) {
    EXPECT_EQ(filled("item", {{"text", "<b>{{text}}</b>"}}), "<li><b>{{text}}</b></li>\n");
    EXPECT_EQ(filled("section", {{"anchor", "a"}, {"title", "T"}, {"body", "<p>\n"}}),
              "<section aria-labelledby=\"a\">\n<h2 id=\"a\">T</h2>\n<p>\n</section>\n");
    EXPECT_EQ(filled("lead", {{"text", ""}}), "<p class=\"lead\"></p>\n");
}

TEST(Skeleton, RefusesABlockOrANameThatIsNotThere) {
    EXPECT_THROW(filled("items", {{"text", ""}}), BrokenInvariant);
    EXPECT_THROW(filled("item", {{"txt", ""}}), BrokenInvariant);
    EXPECT_THROW(filled("contents", {}), BrokenInvariant);
}

}  // namespace
}  // namespace tsdiag::reports
