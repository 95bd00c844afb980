#include "families/models_page.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/places.hpp"
#include "tsdiag/families.hpp"

namespace tsdiag::test {
namespace {

TEST(ModelsPage, IsWrittenFromTheList) {
    const std::string file = test_data() + "/../../docs/models.md";
    const std::string expected = families::models_markdown();
    for (const ArchitectureEntry* entry : architectures())
        EXPECT_NE(expected.find("| `" + std::string(entry->name) + "` |"), std::string::npos);
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << expected;
    std::ostringstream found;
    found << std::ifstream(file).rdbuf();
    EXPECT_EQ(found.str(), expected)
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write docs/models.md anew";
}

}  // namespace
}  // namespace tsdiag::test
