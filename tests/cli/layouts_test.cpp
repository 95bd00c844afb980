#include <gmock/gmock.h>

#include "program.hpp"
#include "support/packers.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"

/// Known families in the files of other libraries, by their names alone, and under names of a
/// user's own, which --map FILE maps.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path golden_models = fs::path(test_data()) / "golden";

class Layouts : public testing::Test {
  protected:
    void write(const std::string& name, const std::string& content) const {
        write_file(fs::path(folder / name), content);
    }
    Finished probe(const std::string& model, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> words{"probe",     model, "--no-report", "--probes", "core",
                                       "--samples", "1",   "-o",          "out",      "--force"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    Json run() const { return Json::parse(read_file(folder / "out/run.json"), "run.json"); }
    std::string numbers() const {
        std::istringstream lines(read_file(folder / "out/metrics.csv"));
        std::string out;
        for (std::string line; std::getline(lines, line);)
            out += line.substr(line.find(',')) + "\n";
        return out;
    }
    const TemporaryDirectory folder;
};

std::string text_of(const Json& list) {
    std::string out;
    for (const Json& line : list.array()) out += line.string() + "\n";
    return out;
}

TEST_F(Layouts, OfOtherLibrariesOpenByTheirNamesAlone) {
    struct Case {
        const char *path, *family, *recognised;
    };
    for (const auto& [path, family, recognised] :
         {Case{"flax-bert", "bert", "Flax"},
          {"flax-gpt2", "gpt2", "Flax"},
          {"flax-gpt2-sharded", "gpt2", "Flax"},
          {"flax-bert/flax_model.msgpack", "bert", "Flax"},
          {"flax-vit", "vit", "Flax"},
          {"flax-llama", "llama", "Flax"},
          {"google-vit/vit.npz", "vit", "Google's ViT"},
          {"gpt-oss-original", "gpt_oss", "OpenAI's own"},
          {"gpt-oss-original-mxfp4", "gpt_oss", "OpenAI's own"},
          {"gpt2-protocol1", "gpt2", ""},
          {"gpt2-deepspeed/mp_rank_00_model_states.pt", "gpt2", "entered 'module'"},
          {"gpt2-zero3", "gpt2", "gpt2-zero3/config.json"},
          {"gpt2-zero3/global_step3", "gpt2", "gpt2-zero3/config.json"},
          {"llama2c-old/llama.bin", "llama", "stored in pairs"},
          {"llama2c-1/llama.bin", "llama", "stored in pairs"},
          {"llama2c-2/llama.bin", "llama", "stored in pairs"}}) {
        const Finished found = probe((golden_models / path).string());
        ASSERT_EQ(found.code, 0) << path << found.err;
        const Json model = run()["model"];
        EXPECT_EQ(model["family"].string(), family);
        EXPECT_THAT(text_of(model["recognised"]), HasSubstr(recognised)) << path;
    }
    const fs::path lens = golden_models / "transformer-lens-folded";
    fs::create_directories(folder / "lens");
    fs::copy_file(lens / "model_final.pth", fs::path(folder / "lens") / "model_final.pth");
    const Finished untold = probe("lens");
    EXPECT_EQ(untold.code, 1);
    EXPECT_THAT(untold.err, HasSubstr("its norms have no weights: folded away, or never there"));
    fs::copy_file(lens / "config.json", fs::path(folder / "lens") / "config.json");
    const Finished folded = probe("lens");
    ASSERT_EQ(folded.code, 0) << folded.err;
    EXPECT_EQ(run()["model"]["family"].string(), "transformer_lens");
    EXPECT_THAT(text_of(run()["model"]["recognised"]), HasSubstr("layouts of TransformerLens"));
    const Finished unknown = probe((golden_models / "torchvision-vit/vit.pth").string());
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, HasSubstr("--n-heads"));
    // Its names are known: no map of names is offered.
    const Finished inspected =
        tsdiag(folder, {"inspect", (golden_models / "torchvision-vit/vit.pth").string()});
    EXPECT_EQ(inspected.code, 0) << inspected.err;
    EXPECT_THAT(inspected.out, HasSubstr("--n-heads"));
    EXPECT_EQ(inspected.out.find("--map"), std::string::npos) << inspected.out;
    EXPECT_EQ(probe((golden_models / "torchvision-vit/vit.pth").string(), {"--n-heads", "3"}).code,
              0);
    EXPECT_EQ(run()["model"]["family"].string(), "torchvision_vit");
}

/// What OpenAI's configuration of gpt-oss has to say for its files, whose tensors do not.
TEST_F(Layouts, OpenAisFilesNeedTheirConfiguration) {
    const fs::path own = golden_models / "gpt-oss-original";
    fs::create_directories(folder / "original");
    fs::copy_file(own / "model.safetensors", fs::path(folder / "original") / "model.safetensors");
    EXPECT_THAT(probe("original").err, HasSubstr("need head_dim in the config.json beside them"));
    const std::string config = read_file(own / "config.json");
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = config;
        const std::size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        write("original/config.json", changed.replace(at, from.size(), to));
        return probe("original");
    };
    EXPECT_THAT(with("\"rope_ntk_alpha\": 0.25,", "").err,
                HasSubstr("need the numbers rope_scaling_factor, rope_ntk_alpha"));
    EXPECT_THAT(with("\"rope_scaling_factor\": 4.0,", "").err,
                HasSubstr("has neither rope_scaling nor rope_parameters"));
    EXPECT_THAT(with("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1").err,
                HasSubstr("is (64,), expected 48 rows of queries, keys and values"));
    EXPECT_THAT(with("\"head_dim\": 8", "\"head_dim\": 800").err, HasSubstr("expected"));
    ASSERT_EQ(with("\"rope_scaling_factor\": 4.0", "\"rope_scaling_factor\": 1.0").code, 0);
}

/// Of a folder of DeepSpeed the file with the model is taken; other parts of one are refused.
TEST_F(Layouts, DeepSpeedsPartsAreRefusedByName) {
    const fs::path whole = golden_models / "gpt2-deepspeed",
                   optimizer = whole / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                   model = whole / "mp_rank_00_model_states.pt";
    EXPECT_EQ(probe(model.string()).code, 0);
    EXPECT_THAT(probe(optimizer.string()).err, HasSubstr("part of the optimizer of DeepSpeed"));
    const auto refusal = [&](const char* name,
                             const std::vector<std::pair<fs::path, const char*>>& files) {
        fs::create_directories(folder / name);
        for (const auto& [from, to] : files) fs::copy_file(from, fs::path(folder / name) / to);
        const Finished done = probe(name);
        EXPECT_EQ(done.code, 1) << name;
        return done.err;
    };
    fs::create_directories(folder / "step");
    for (const fs::path& file : {optimizer, model, whole / "config.json"})
        fs::copy_file(file, fs::path(folder / "step") / file.filename());
    EXPECT_EQ(probe("step").code, 0);
    EXPECT_THAT(refusal("third", {{model, "zero_pp_rank_0_mp_rank_00_model_states.pt"},
                                  {optimizer, "zero_pp_rank_0_mp_rank_00_optim_states.pt"}}),
                HasSubstr("which does not say that it is one of 1 of stage 3, expected all parts"));
    EXPECT_THAT(refusal("tensors", {{model, "mp_rank_00_model_states.pt"},
                                    {model, "mp_rank_01_model_states.pt"}}),
                HasSubstr("a model in 2 parts of DeepSpeed's tensor parallelism"));
    EXPECT_THAT(refusal("optimizer", {{optimizer, "zero_pp_rank_0_mp_rank_00_optim_states.pt"},
                                      {optimizer, "zero_pp_rank_1_mp_rank_00_optim_states.pt"}}),
                HasSubstr("parts of the optimizer of DeepSpeed's ZeRO alone"));
}

/// Stage 3 of ZeRO: the golden has right values where all parts are there, and none else.
TEST_F(Layouts, DeepSpeedsPartsOfStage3AreJoinedWhereAllAreThere) {
    const fs::path copy = folder / "step";
    const std::string part = "zero_pp_rank_", model = "_mp_rank_00_model_states.pt",
                      optimizer = "_mp_rank_00_optim_states.pt";
    const auto with = [&](const auto& change) {
        fs::remove_all(copy);
        fs::copy(golden_models / "gpt2-zero3/global_step3", copy);
        fs::copy_file(golden_models / "gpt2-zero3/config.json", copy / "config.json");
        change();
        return probe("step");
    };
    EXPECT_EQ(with([] {}).code, 0);
    const std::string whole = numbers();
    EXPECT_EQ(probe((golden_models / "gpt2-zero3").string()).code, 0);
    EXPECT_EQ(numbers(), whole);
    // The configuration lies above a folder of any name.
    fs::create_directories(folder / "run");
    fs::copy(golden_models / "gpt2-zero3/global_step3", folder / "run/tag");
    fs::copy_file(golden_models / "gpt2-zero3/config.json", folder / "run/config.json");
    for (const char* path : {"run/tag", "run/tag/."}) {
        EXPECT_EQ(probe(path).code, 0) << path;
        EXPECT_EQ(numbers(), whole);
    }
    const auto refusal = [&](const auto& change) {
        const Finished done = with(change);
        EXPECT_EQ(done.code, 1);
        EXPECT_THAT(done.err, HasSubstr("zero_to_fp32.py"));
        return done.err;
    };
    EXPECT_THAT(refusal([&] { fs::remove(copy / (part + "1" + model)); }),
                HasSubstr("the models of 1 processes and the optimizers of 2"));
    EXPECT_THAT(refusal([&] { fs::remove(copy / (part + "1" + optimizer)); }),
                HasSubstr("the models of 2 processes and the optimizers of 1"));
    for (const std::string& ending : {model, optimizer})  // a process that there is not
        EXPECT_THAT(refusal([&] {
                        fs::rename(copy / (part + "1" + ending), copy / (part + "2" + ending));
                    }),
                    HasSubstr("expected all parts"));
    EXPECT_THAT(refusal([&] {
                    fs::remove(copy / (part + "1" + model));
                    fs::remove(copy / (part + "1" + optimizer));
                }),
                HasSubstr("does not say that it is one of 1"));
    EXPECT_THAT(refusal([&] {
                    fs::copy_file(copy / (part + "1" + model),
                                  copy / (part + "1_mp_rank_01_model_states.pt"));
                }),
                HasSubstr("a part of another division"));
    EXPECT_THAT(with([&] {
                    fs::remove(copy / (part + "0" + optimizer));
                    fs::copy_file(golden_models / "gpt2-deepspeed" /
                                      "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                                  copy / (part + "0" + optimizer));
                }).err,
                HasSubstr("one of 2 of stage 3"));
    EXPECT_THAT(probe((copy / (part + "0" + model)).string()).err, HasSubstr("Pass its folder"));
}

TEST_F(Layouts, AParameterThatStage3LeftEmptyIsToldSo) {
    const auto file = open_checkpoint(golden_models / "gpt2/model.safetensors");
    std::vector<Array> arrays;
    for (const std::string& name : file->names()) {
        const RawTensor raw = file->tensor(name);
        if (raw.dtype != DType::f32) continue;
        const bool left = name == "wte.weight";
        std::vector<float> values(left ? 0 : std::size_t(raw.count()));
        if (!left) widen<float>(raw, values);
        arrays.push_back(
            {name, "F32", left ? std::vector<std::int64_t>{0} : raw.shape, bytes_of(values)});
    }
    write("model.safetensors", safetensors(arrays));
    write("config.json", read_file(golden_models / "gpt2/config.json"));
    EXPECT_THAT(probe("model.safetensors").err, HasSubstr("'wte.weight' is empty, as ZeRO-3"));
}

/// What Trainers save at a step is one model, whatever lies beside it.
TEST_F(Layouts, OfATrainersStepTheModelIsTaken) {
    const fs::path two = fs::path(test_data()) / "distributed/two", step = folder / "checkpoint-10";
    for (const char* name : {"pytorch_model_fsdp_0", "optimizer_0"}) {
        fs::create_directories(step);
        fs::copy(two, step / name);
    }
    EXPECT_THAT(probe("checkpoint-10").err,
                HasSubstr("pytorch_model_fsdp_0: unknown layout of its"));
    const fs::path local = folder / "local", megatron = folder / "megatron";
    fs::create_directories(local);
    for (const char* rank : {"0", "1"})
        write(std::string("local/pytorch_model_fsdp_rank") + rank + ".bin", "x");
    EXPECT_THAT(probe("local").err, HasSubstr("the local states of FSDP's processes"));
    fs::create_directories(megatron);
    write("megatron/latest_checkpointed_iteration.txt", "10");
    EXPECT_THAT(probe("megatron").err, HasSubstr("is a checkpoint of Megatron-LM"));
}

/// As torch.save writes it, but torch.load does not read it: the storage of a tensor is a text.
TEST_F(Layouts, APickleOfProtocol0IsRefusedByName) {
    const std::string pickles =
        "L119547037146038801333356L\n.I1001\n."
        "(dp0\nVprotocol_version\nI1001\nsVlittle_endian\nI01\ns."
        "(dp0\nVwte.weight\nctorch._utils\n_rebuild_tensor_v2\n"
        "(P('storage', <class 'torch.FloatStorage'>, '7', 'cpu', 2, None)\n"
        "I0\n(I2\nt(I1\ntI00\nccollections\nOrderedDict\n(tRtRs.(lp0\nV7\na.";
    write("old.pt", pickles + std::string("\x02\0\0\0\0\0\0\0", 8) + std::string(8, '\0'));
    const Finished done = probe("old.pt");
    EXPECT_EQ(done.code, 1);
    EXPECT_THAT(done.err, HasSubstr("saved with pickle protocol 0"));
    EXPECT_THAT(done.err, HasSubstr("Save it again"));
}

TEST_F(Layouts, ATensorFlowCheckpointOpensByItsFolderItsIndexAndItsPrefix) {
    fs::create_directories(folder / "google");
    for (const char* name :
         {"bert_config.json", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"})
        fs::copy_file(golden_models / "tensorflow-bert" / name, fs::path(folder / "google") / name);
    std::string first;
    for (const char* model : {"google", "google/bert_model.ckpt.index", "google/bert_model.ckpt"}) {
        const Finished found = probe(model, {"--tokens", "8"});
        ASSERT_EQ(found.code, 0) << model << found.err;
        if (first.empty()) first = numbers();
        EXPECT_EQ(numbers(), first);
        const std::string recognised = text_of(run()["model"]["recognised"]);
        EXPECT_THAT(recognised, HasSubstr("names and layouts of TensorFlow's BERT"));
        EXPECT_THAT(recognised, HasSubstr("skipped 2 variables of the optimizer"));
        EXPECT_THAT(recognised, HasSubstr("bert_config.json"));
    }
    EXPECT_THAT(probe("google/other.ckpt").err, HasSubstr("no such file or directory"));
}

/// The golden GPT-2 as a user may have written it: nn.Linear, q, k and v apart or one matrix of
/// rows in another order, under names of their own.
struct OwnModel {
    std::vector<Array> arrays;

    static std::vector<float> turned(const std::vector<float>& a, std::int64_t rows,
                                     std::int64_t columns) {
        std::vector<float> out(a.size());
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c)
                out[std::size_t(c * rows + r)] = a[std::size_t(r * columns + c)];
        return out;
    }

    OwnModel() {
        const auto file = open_checkpoint(golden_models / "gpt2/model.safetensors");
        for (const std::string& name : file->names()) {
            if (name.ends_with(".attn.bias")) continue;  // the mask
            const RawTensor raw = file->tensor(name);
            std::vector<float> values(std::size_t(raw.count()));
            widen<float>(raw, values);
            add(name, raw.shape, values);
        }
    }
    void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
        std::string own = "net." + name;
        const auto replace = [&](const char* from, const char* to) {
            if (const std::size_t at = own.find(from); at != own.npos)
                own.replace(at, std::string_view(from).size(), to);
        };
        for (const auto& [from, to] : {std::pair{".h.", ".blocks."},
                                       {"ln_1", "norm_a"},
                                       {"ln_2", "norm_b"},
                                       {"mlp.c_fc", "up"},
                                       {"mlp.c_proj", "down"},
                                       {"attn.c_proj", "out"},
                                       {"wte.", "words."},
                                       {"wpe.", "places."},
                                       {"ln_f", "end"}})
            replace(from, to);
        const bool conv = name.find("c_") != name.npos && shape.size() == 2;
        const std::size_t fused = own.find("attn.c_attn");
        if (fused == own.npos) {
            // `up` and `down` are nn.Linear, the others as they were.
            const bool turn =
                conv && (own.find("up.") != own.npos || own.find("down.") != own.npos);
            if (turn) {
                values = turned(values, shape[0], shape[1]);
                std::swap(shape[0], shape[1]);
            }
            arrays.push_back({own, "F32", shape, bytes_of(values)});
            return;
        }
        // (in, 3 out), or 3 out numbers: three matrices (out, in) or vectors, or columns of one.
        if (conv) values = turned(values, shape[0], shape[1]);
        const std::size_t third = values.size() / 3;
        for (std::size_t part = 0; part < 3; ++part) {
            const std::vector<float> rows(values.begin() + std::ptrdiff_t(part * third),
                                          values.begin() + std::ptrdiff_t((part + 1) * third));
            std::string one = own;
            one.replace(fused, std::string_view("attn.c_attn").size(), std::string(1, "qkv"[part]));
            std::vector<std::int64_t> of_one{shape.back() / 3};
            if (conv) of_one.push_back(shape[0]);
            arrays.push_back({one, "F32", of_one, bytes_of(rows)});
        }
    }
};

constexpr const char* own_map = R"(# names of mine
model_type = gpt2
n_head = 2
activation_function = gelu_new

net.words.weight -> wte.weight
net.places.weight -> wpe.weight
net.blocks.*.norm_a.weight -> h.*.ln_1.weight
net.blocks.*.norm_a.bias -> h.*.ln_1.bias
net.blocks.*.norm_b.weight -> h.*.ln_2.weight
net.blocks.*.norm_b.bias -> h.*.ln_2.bias
net.blocks.*.q.weight + net.blocks.*.k.weight + net.blocks.*.v.weight -> h.*.attn.c_attn.weight
net.blocks.*.q.bias + net.blocks.*.k.bias + net.blocks.*.v.bias -> h.*.attn.c_attn.bias
net.blocks.*.out.weight -> h.*.attn.c_proj.weight transposed
net.blocks.*.out.bias -> h.*.attn.c_proj.bias
net.blocks.*.up.weight -> h.*.mlp.c_fc.weight
net.blocks.*.up.bias -> h.*.mlp.c_fc.bias
net.blocks.*.down.weight -> h.*.mlp.c_proj.weight
net.blocks.*.down.bias -> h.*.mlp.c_proj.bias
net.end.weight -> ln_f.weight
net.end.bias -> ln_f.bias
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
}

TEST_F(Layouts, AMapGivesTheNumbersOfTheSameModelUnderKnownNames) {
    ASSERT_EQ(probe((golden_models / "gpt2").string(), {"--tokens", "8"}).code, 0);
    const std::string known = numbers();
    EXPECT_GT(known.size(), 1000U);
    write("own.safetensors", safetensors(OwnModel().arrays));
    const Finished refused = probe("own.safetensors", {"--tokens", "8"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("--map FILE, of which tsdiag inspect prints a draft"));
    const Finished drafted = tsdiag(folder, {"inspect", "own.safetensors"});
    EXPECT_THAT(drafted.out, HasSubstr("\nnet.blocks.*.q.weight -> ?  # (16, 16), 2 of them\n"));
    write("own.map", own_map);
    const Finished found = probe("own.safetensors", {"--tokens", "8", "--map", "own.map"});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(numbers(), known);
    const Json said = run();
    EXPECT_EQ(said["settings"]["map"].string(), "own.map");
    EXPECT_THAT(text_of(said["model"]["recognised"]), HasSubstr("map of names: own.map "));
    EXPECT_THAT(text_of(said["model"]["warnings"]), HasSubstr("own.map gives them (--map)"));
}

TEST_F(Layouts, PartsAndRowsOfATensorAreTakenApart) {
    // BERT's three projections from one matrix, by parts and by rows.
    ASSERT_EQ(probe((golden_models / "bert").string(), {"--tokens", "8"}).code, 0);
    const std::string known = numbers();
    const auto file = open_checkpoint(golden_models / "bert/model.safetensors");
    std::vector<Array> arrays;
    std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>> fused;
    for (const std::string& name : file->names()) {
        const RawTensor raw = file->tensor(name);
        std::vector<float> values(std::size_t(raw.count()));
        widen<float>(raw, values);
        const std::size_t at = name.find("self.");
        if (at == name.npos) {
            arrays.push_back({name, "F32", raw.shape, bytes_of(values)});
            continue;
        }
        const std::size_t part = name.find("query") != name.npos ? 0
                                 : name.find("key") != name.npos ? 1
                                                                 : 2;
        auto& [shape, all] = fused[name.substr(0, at) + "in_proj" + name.substr(name.rfind('.'))];
        shape = raw.shape;
        all.resize(values.size() * 3);
        std::ranges::copy(values, all.begin() + std::ptrdiff_t(part * values.size()));
    }
    for (auto& [name, both] : fused) {
        both.first.front() *= 3;
        arrays.push_back({name, "F32", both.first, bytes_of(both.second)});
    }
    write("own.safetensors", safetensors(arrays));
    fs::copy_file(golden_models / "bert/config.json", fs::path(folder / "config.json"));
    std::string map, rows;
    for (const char* end : {"weight", "bias"})
        for (int part = 0; part < 3; ++part) {
            const std::string line = std::string("bert.encoder.layer.*.attention.in_proj.") + end +
                                     " -> bert.encoder.layer.*.attention.self." +
                                     std::array{"query", "key", "value"}[std::size_t(part)] + "." +
                                     end;
            map += line + " part " + std::to_string(part + 1) + " of 3\n";
            rows += line + " rows " + std::to_string(18 * part) + ":" +
                    std::to_string(18 * (part + 1)) + "\n";
        }
    for (const std::string& text : {map, rows}) {
        write("own.map", text);
        const Finished found = probe("own.safetensors", {"--tokens", "8", "--map", "own.map"});
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_EQ(numbers(), known);
    }
    const std::size_t last = map.rfind("bert.encoder", map.rfind("->") - 3);
    write("own.map", map.substr(0, last));
    EXPECT_THAT(probe("own.safetensors", {"--map", "own.map"}).err,
                HasSubstr("but not row 36 of its 54"));
    write("own.map", replaced(map, "part 2 of 3", "part 1 of 3"));
    EXPECT_THAT(probe("own.safetensors", {"--map", "own.map"}).err, HasSubstr("gives two names"));
    write("own.map", replaced(map, "part 2 of 3", "part 2 of 4"));
    EXPECT_THAT(probe("own.safetensors", {"--map", "own.map"}).err,
                HasSubstr("do not divide into 4 parts"));
    write("own.map", replaced(rows, "rows 36:54", "rows 36:55"));
    EXPECT_THAT(probe("own.safetensors", {"--map", "own.map"}).err,
                HasSubstr("does not have the rows 36 to 55"));
}

TEST_F(Layouts, AMapThatIsNotUnderstoodIsRefused) {
    write("own.safetensors", safetensors(OwnModel().arrays));
    const std::string map = own_map;
    struct Case {
        const char *from, *to, *sentence;
    };
    for (const auto& [from, to, sentence] :
         {Case{"net.end.bias -> ln_f.bias", "net.end.bias", "neither NAME -> NAME nor KEY = VALUE"},
          {"net.end.bias -> ln_f.bias", "", "'ln_f.bias' is missing"},
          {"net.end.bias -> ln_f.bias", "net.end.bias -> ?", "'ln_f.bias' is missing"},
          {"net.end.bias -> ln_f.bias", "net.fin.bias -> ln_f.bias", "matches no tensor"},
          {"net.end.bias -> ln_f.bias", "net.end.bias -> ln_f.weight",
           "would both be 'ln_f.weight'"},
          {"net.end.bias -> ln_f.bias", "net.end.bias -> ln_f.bias\nnet.end.bias -> other",
           "gives two names"},
          {"h.*.ln_1.bias", "h.0.ln_1.bias", "different numbers of '*'"},
          {"h.*.ln_1.bias", "h.*.ln_1.bias turned", "is none of transposed, part I of N"},
          {"h.*.ln_1.bias", "h.*.ln_1.bias transposed", "only a matrix is transposed"},
          {"h.*.ln_1.bias", "h.*.ln_1.bias part 3 of 2", "is no part"},
          {"h.*.ln_1.bias", "h.*.ln_1.bias rows 4:4", "is not A:B with A below B"},
          {"h.*.attn.c_attn.bias", "h.*.attn.c_attn.bias part 1 of 2", "write two lines"},
          {"net.blocks.*.k.bias", "net.blocks.*.w.bias", "but not 'net.blocks.0.w.bias'"},
          {"n_head = 2", "n_head = 2\nn_head = 2", "stands in it twice"},
          {"n_head = 2", "n_head =", "a key or a value only"},
          {"n_head = 2", "n_head = 2\nalibi_bias = true", "the key 'alibi_bias'"},
          {"model_type = gpt2", "model_type = bert", "a bert model needs a tensor"}}) {
        const std::string changed = replaced(map, from, to);
        write("own.map", changed);
        const Finished found = probe("own.safetensors", {"--tokens", "8", "--map", "own.map"});
        EXPECT_EQ(found.code, 1) << to;
        EXPECT_THAT(found.err, HasSubstr(sentence)) << to;
    }
    write("own.map", map);
    write("config.json", R"({"model_type": "gpt2", "n_head": 4})");
    EXPECT_THAT(probe("own.safetensors", {"--map", "own.map"}).err,
                HasSubstr("n_head = 2, but the configuration says 4"));
    fs::remove(fs::path(folder / "config.json"));
    write("own.map", "n_head = 2\n");
    EXPECT_THAT(probe("own.safetensors", {"--map", "own.map"}).err,
                HasSubstr("has no line NAME -> NAME"));
    EXPECT_THAT(probe("own.safetensors", {"--map", "none.map"}).err, HasSubstr("none.map"));
    EXPECT_THAT(probe("random:gpt2,layers=1", {"--map", "own.map"}).err, HasSubstr("--map"));
}

}  // namespace
}  // namespace tsdiag::test
