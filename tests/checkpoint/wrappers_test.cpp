#include "checkpoint/zip_writer.hpp"

namespace tsdiag {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string one_float = samples::raw<float>({7});

/// A value for a pickle: {name: tensor, ...} of one-element tensors.
std::string tensors(const std::vector<std::string>& names) {
    std::string items;
    for (const std::string& name : names)
        items += samples::text(name) + samples::tensor("0", 1, 0, {1}, {1});
    return "}(" + items + "u";
}
using Members = std::vector<std::pair<std::string, std::string>>;

/// The file {key: pickled value, ...}, unwrapped.
std::unique_ptr<Checkpoint> unwrapped(const Members& members, std::vector<std::string>* notes) {
    const samples::TemporaryFolder folder;
    std::string items;
    for (const auto& [key, value] : members) items += samples::text(key) + value;
    const auto path =
        folder.write("m.pt", samples::torch_zip_of(samples::dict(items), {one_float}));
    return unwrap(open_checkpoint(path), notes);
}
std::vector<std::string> names_of(const Members& members) {
    return unwrapped(members, nullptr)->names();
}
Members lightning(const std::vector<std::string>& names) {
    return {{"epoch", "K\x03"}, {"state_dict", tensors(names)}};
}
/// A plain state dict: no wrapper at all.
Members plain(const std::vector<std::string>& names) {
    Members members;
    for (const std::string& name : names)
        members.emplace_back(name, samples::tensor("0", 1, 0, {1}, {1}));
    return members;
}

TEST(Unwrap, LeavesAPlainFileAsItIs) {
    std::vector<std::string> notes;
    auto file = open_checkpoint(samples::folder() / "types.safetensors");
    const Checkpoint* before = file.get();
    EXPECT_EQ(unwrap(std::move(file), &notes).get(), before);
    EXPECT_THAT(notes, IsEmpty());
    EXPECT_THAT(names_of(plain({"model.embed_tokens.weight", "model.norm.weight"})),
                ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
}

TEST(Unwrap, EntersWrappersAndNotesWhatItLeavesOut) {
    std::vector<std::string> notes;
    const auto file = unwrapped({{"model", tensors({"a", "b"})},
                                 {"optimizer", tensors({"x", "y", "z"})},
                                 {"rng", samples::tensor("0", 1, 0, {1}, {1})},
                                 {"epoch", "K\x03"}},
                                &notes);
    EXPECT_THAT(file->names(), ElementsAre("a", "b"));
    EXPECT_EQ(samples::values(file->tensor("b"))[0], 7);
    EXPECT_EQ(file->metadata()["epoch"].integer(), 3);
    EXPECT_EQ(file->format(), "torch zip");
    EXPECT_THAT(notes, ElementsAre("entered 'model'", "skipped 3 tensors of 'optimizer'",
                                   "skipped 1 tensor of 'rng'"));
    EXPECT_THROW(file->tensor("model.a"), UsageError);
}

TEST(Unwrap, PrefersStateDictThenModelAndAveragesLast) {
    const std::string x = tensors({"x"}), y = tensors({"y"});
    EXPECT_THAT(names_of({{"model", y}, {"state_dict", x}}), ElementsAre("x"));
    EXPECT_THAT(names_of({{"model_ema", y}, {"model", x}}), ElementsAre("x"));
    EXPECT_THAT(names_of({{"state_dict_ema", y}, {"state_dict", x}}), ElementsAre("x"));
    std::vector<std::string> notes;
    EXPECT_THAT(unwrapped({{"model_ema", x}}, &notes)->names(), ElementsAre("x"));
    EXPECT_THAT(notes, Contains(HasSubstr("averaged over training")));
}

TEST(Unwrap, EntersNestedWrappers) {
    EXPECT_THAT(names_of({{"model", "}(" + samples::text("state_dict") + tensors({"x"}) + "u"}}),
                ElementsAre("x"));
}

TEST(Unwrap, DropsBookkeepingBesideAModelWithoutWrapper) {
    Members members = plain({"embed.weight"});
    members.emplace_back("optimizer_states", "](" + tensors({"x"}) + "e");
    std::vector<std::string> notes;
    EXPECT_THAT(unwrapped(members, &notes)->names(), ElementsAre("embed.weight"));
    EXPECT_THAT(notes, ElementsAre("skipped 1 tensor of 'optimizer_states'"));
    EXPECT_THAT(names_of(plain({"optimizer.weight"})), ElementsAre("optimizer.weight"))
        << "a name of the model itself";
}

TEST(Unwrap, StripsModuleAndOrigModWhereverTheyLead) {
    std::vector<std::string> notes;
    const auto file = unwrapped(
        plain({"module._orig_mod.a", "_orig_mod.module.module.b", "c.module.d", "e"}), &notes);
    EXPECT_THAT(file->names(), ElementsAre("a", "b", "c.module.d", "e"));
    EXPECT_THAT(notes, ElementsAre("stripped '_orig_mod.' from 2 names",
                                   "stripped 'module.' from 3 names"));
    EXPECT_THAT(names_of(plain({"module.0.weight"})), ElementsAre("0.weight"));
}

TEST(Unwrap, RefusesNamesThatCollide) {
    const std::string message = samples::message_of<FormatError>([] {
        names_of(plain({"module.a", "b", "_orig_mod.a"}));
    });
    EXPECT_THAT(message, HasSubstr("'module.a' and '_orig_mod.a' are both 'a'"));
}

TEST(Unwrap, StripsTheLightningAttributeThatAllNamesShare) {
    EXPECT_THAT(names_of(lightning({"net.embed.weight", "net.0.weight"})),
                ElementsAre("net.embed.weight", "net.0.weight"))
        << "nothing but a number would be left";
    EXPECT_THAT(names_of(lightning({"net.embed.weight", "net.head.weight"})),
                ElementsAre("embed.weight", "head.weight"));
    EXPECT_THAT(names_of(lightning({"model._orig_mod.blocks.0.w", "model._orig_mod.head.w"})),
                ElementsAre("blocks.0.w", "head.w"));
    EXPECT_THAT(names_of(lightning({"net.a", "loss.weight"})), ElementsAre("net.a", "loss.weight"));
    EXPECT_THAT(names_of({{"state_dict", tensors({"net.a"})}}), ElementsAre("net.a"))
        << "not Lightning";
}

TEST(Unwrap, LeavesThePrefixesOfFamilies) {
    EXPECT_THAT(names_of(lightning({"bert.embeddings.x", "bert.encoder.y"})),
                ElementsAre("bert.embeddings.x", "bert.encoder.y"));
    EXPECT_THAT(names_of(lightning({"model.embed_tokens.weight", "model.norm.weight"})),
                ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
    EXPECT_THAT(names_of(lightning({"model.layers.0.self_attn.q_proj.weight"})),
                ElementsAre("model.layers.0.self_attn.q_proj.weight"));
    EXPECT_THAT(names_of(lightning({"model.model.embed_tokens.weight", "model.lm_head.weight"})),
                ElementsAre("model.embed_tokens.weight", "lm_head.weight"));
    EXPECT_THAT(names_of(lightning({"model.transformer.wte.weight"})),
                ElementsAre("transformer.wte.weight"));
}

TEST(Unwrap, TakesPickledModulesOfAWrapper) {
    const auto file = unwrap(open_checkpoint(samples::folder() / "module.pt"), nullptr);
    EXPECT_THAT(file->names(), Contains("0.weight"));
}

TEST(Unwrap, KeepsTheDigestApartFromTheWholeFiles) {
    const auto path = samples::folder() / "lightning.ckpt";
    const auto whole = open_checkpoint(path);
    const auto model = unwrap(open_checkpoint(path), nullptr);
    EXPECT_NE(header_digest(*whole), header_digest(*model));
    EXPECT_EQ(header_digest(*whole), header_digest(*open_checkpoint(path)));
}

}  // namespace
}  // namespace tsdiag
