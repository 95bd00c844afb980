#include <unistd.h>

#include "samples.hpp"

/// Folders of sentence-transformers.
namespace tsdiag {
namespace {

using samples::message_of;
using samples::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string module(const std::string& type, const std::string& path) {
    return R"({"idx": 0, "name": "0", "path": ")" + path + R"(", "type": ")" + type + R"("})";
}
const std::string pooling = module("sentence_transformers.models.Pooling", "1_Pooling");

class Modules : public testing::Test {
  protected:
    ModuleFolder found(const std::string& list) const {
        folder.write("modules.json", list);
        return module_folder(folder.path());
    }
    std::string refused(const std::string& list) const {
        return message_of<FormatError>([&] { found(list); });
    }
    const TemporaryFolder folder;
};

TEST_F(Modules, AFolderWithoutAListIsTheModel) {
    EXPECT_EQ(module_folder(folder.path()).model, folder.path());
    EXPECT_EQ(module_folder("model.safetensors").model, "model.safetensors");
}

TEST_F(Modules, TheTransformerIsInItsFolderOrBesideTheList) {
    const std::string old = "sentence_transformers.models.Transformer";
    const ModuleFolder below = found("[" + module(old, "0_Transformer") + "," + pooling + "]");
    EXPECT_EQ(below.model, folder / "0_Transformer");
    EXPECT_THAT(below.others, ElementsAre("Pooling"));
    const std::string now = "sentence_transformers.base.modules.transformer.Transformer";
    EXPECT_EQ(found("[" + module(now, "") + "," + pooling + "]").model, folder.path());
}

TEST_F(Modules, WithoutATransformerTheFolderIsTheModel) {
    const ModuleFolder none = found("[" + pooling + "]");
    EXPECT_EQ(none.model, folder.path());
    EXPECT_THAT(none.others, IsEmpty());
}

TEST_F(Modules, AreRefusedWhereTheyLeadNowhere) {
    const std::string type = "sentence_transformers.models.Transformer";
    EXPECT_THAT(refused("{}"), HasSubstr("modules.json: is not a list"));
    EXPECT_THAT(refused("[{}]"), HasSubstr("without a type or a path"));
    EXPECT_THAT(refused("[1]"), HasSubstr("without a type or a path"));
    EXPECT_THAT(refused("[" + module(type, "a") + "," + module(type, "b") + "]"),
                AllOf(HasSubstr("2 transformers"), HasSubstr("'a' and 'b'")));
    for (const char* path : {"../a", "/etc", "a/b", ".."})
        EXPECT_THAT(refused("[" + module(type, path) + "]"), HasSubstr("plain name"));
    EXPECT_THAT(refused("["), HasSubstr("modules.json"));
}

TEST_F(Modules, AreNoCheckpointsOfATraining) {
    for (const char* at : {"0_Transformer", "2_Dense"}) {
        std::filesystem::create_directory(folder / at);
        folder.write(std::string(at) + "/pytorch_model.bin", "");
    }
    EXPECT_EQ(checkpoints_in(folder.path()).size(), 2U);
    found("[" + module("sentence_transformers.models.Transformer", "0_Transformer") + "]");
    EXPECT_THAT(checkpoints_in(folder.path()), IsEmpty());
}

}  // namespace
}  // namespace tsdiag
