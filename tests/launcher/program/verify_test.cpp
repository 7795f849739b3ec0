// dstrain verify from the shell's side: configurations that compute what plain training does, and seeded faults that it
// finds.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({
  "train_batch_size": 12, "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
  "dstrain": {
    "model": {"n_layer": 4, "n_embd": 64, "n_head": 4, "block_size": 32, "vocab_size": 1000}
  }
})";

struct Verified {
  int status = -1;
  std::string text;
};

// Runs verify in the folder and checks that it leaves nothing there.
Verified verify(const RunFolder& folder, const std::string& options) {
  folder.write("v.json", kConfig);
  const auto entries = [&] {
    return std::distance(fs::recursive_directory_iterator(folder.root),
                         fs::recursive_directory_iterator());
  };
  const auto before = entries();
  RunningProgram program =
      folder.start(std::string(DSTRAIN_PROGRAM) + " verify --config v.json " + options);
  Verified result;
  result.status = program.wait();
  result.text = program.text();
  CHECK(entries() == before);
  return result;
}

constexpr const char* kStage1 = "--set zero_optimization.stage=1 ";
constexpr const char* kStage2 = "--set zero_optimization.stage=2 --set bf16.enabled=true ";
constexpr const char* kStage3 =
    "--set zero_optimization.stage=3 --set dstrain.recompute=1 --set dstrain.reduce=boundary ";
constexpr const char* k1F1B = "--pipeline_num_stages 2 --set zero_optimization.stage=1 ";
constexpr const char* kGPipe =
    "--pipeline_num_stages 2 --pipeline_schedule gpipe --set bf16.enabled=true ";
constexpr const char* kZeroBubble = "--pipeline_num_stages 2 --pipeline_schedule zb-h1 ";
constexpr const char* kSigns = "--set optimizer.type=OneBitAdam --set zero_optimization.stage=1 ";
constexpr const char* kLocalSigns = "--num_gpus 2 --set optimizer.type=ZeroOneAdam ";
constexpr const char* kOtherWords = "--num_gpus 2 --seed 2 --set zero_optimization.stage=1 ";
constexpr const char* kLion = "--set optimizer.type=Lion --set zero_optimization.stage=2 ";
constexpr const char* kFactors = "--set dstrain.comm_hook.type=powerSGD ";
constexpr const char* kInt4 =
    "--set bf16.enabled=true --set zero_optimization.stage=3 "
    "--set zero_optimization.zero_quantized_gradients=true "
    "--set zero_optimization.zeropp_loco_param.err_beta=0.8 ";
constexpr const char* kHost =
    "--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=cpu "
    "--set zero_optimization.offload_param.device=cpu ";

constexpr const char* kTensor = "--num_gpus 2 --set tensor_parallel.autotp_size=2 ";
constexpr const char* kTensorStage1 =
    "--num_gpus 4 --set tensor_parallel.autotp_size=2 --set zero_optimization.stage=1 ";
constexpr const char* kTensorStage2 =
    "--num_gpus 2 --set tensor_parallel.autotp_size=2 --set zero_optimization.stage=2 "
    "--set bf16.enabled=true ";
constexpr const char* kSequence = "--num_gpus 2 --set sequence_parallel_size=2 ";
constexpr const char* kSequenceStage3 =
    "--num_gpus 2 --set sequence_parallel_size=2 --set zero_optimization.stage=3 ";
constexpr const char* kSequenceData =
    "--num_gpus 4 --set sequence_parallel_size=2 --set bf16.enabled=true ";
constexpr const char* kBoth =
    "--num_gpus 4 --set sequence_parallel_size=2 --set tensor_parallel.autotp_size=2 ";
constexpr const char* kBothOfEightHeads =
    "--num_gpus 4 --set sequence_parallel_size=2 --set tensor_parallel.autotp_size=2 "
    "--set dstrain.model.n_head=8 ";
constexpr const char* kAllAxes =
    "--num_gpus 8 --set sequence_parallel_size=2 --set tensor_parallel.autotp_size=2 "
    "--pipeline_num_stages 2 --set zero_optimization.stage=1 ";

constexpr const char* kEmbeddingDropout =
    "--num_gpus 2 --set 'dstrain.model={\"type\":\"gpt2\",\"n_layer\":2,\"n_embd\":32,\"n_head\":2,"
    "\"n_positions\":32,\"vocab_size\":1000,\"attn_pdrop\":0,\"resid_pdrop\":0}' ";
constexpr const char* kRecompute =
    "--num_gpus 2 --set sequence_parallel_size=2 --set dstrain.recompute=2 ";
constexpr const char* kTensorRecompute =
    "--num_gpus 2 --set tensor_parallel.autotp_size=2 --set dstrain.recompute=1 ";
constexpr const char* kTensorSlices =
    "--num_gpus 4 --set tensor_parallel.autotp_size=2 --set zero_optimization.stage=2 ";
constexpr const char* kLambHost =
    "--set optimizer.type=Lamb --set zero_optimization.stage=1 "
    "--set zero_optimization.offload_optimizer.device=cpu ";
constexpr const char* kTied =
    "--pipeline_num_stages 2 --set dstrain.model.tied_head=true --set zero_optimization.stage=1 ";
constexpr const char* kTiedZeroBubble =
    "--pipeline_num_stages 2 --pipeline_schedule zb-v --set dstrain.model.tied_head=true ";

struct SeededCase {
  const char* fault;
  const char* options;
  const char* instruction;  // a part of the one that is named
};

// Three configurations or more that hold the feature, for each fault. Those of divided layers run on two ranks and more.
const SeededCase kCases[] = {
    {"dropped_gather", kStage1, "all_gather"},
    {"dropped_gather", kStage2, "all_gather"},
    {"dropped_gather", kStage3, "all_gather"},
    {"doubled_gradient", kStage2, "linear_weight_grad"},
    {"doubled_gradient", kStage3, "linear_weight_grad"},
    {"doubled_gradient", kZeroBubble, "linear_weight_grad"},
    {"mask_offset", kStage2, "attention"},
    {"mask_offset", kHost, "attention"},
    {"mask_offset", kGPipe, "attention"},
    {"mask_offset", kStage3, "attention"},
    {"mask_offset", kEmbeddingDropout, "dropout_grad"},
    {"stale_weight", kStage1, "adam"},
    {"stale_weight", kHost, "adam"},
    {"stale_weight", k1F1B, "adam"},
    {"unclipped_unit", kStage1, "adam"},
    {"unclipped_unit", kHost, "adam"},
    {"unclipped_unit", kGPipe, "adam"},
    {"missed_micro_batch", kStage1, "_grad"},
    {"missed_micro_batch", kStage3, "_grad"},
    {"missed_micro_batch", k1F1B, "_grad"},
    {"missed_micro_batch", kTied, "_grad"},
    {"wrong_beta", kStage2, "adam"},
    {"wrong_beta", kHost, "adam"},
    {"wrong_beta", kGPipe, "adam"},
    {"wrong_beta", kLambHost, "lamb_direction"},
    {"wrong_beta", kTied, "adam"},
    {"wrong_beta", kTiedZeroBubble, "adam"},
    {"repeated_data", kStage1, "load_batch"},
    {"repeated_data", kStage3, "load_batch"},
    {"repeated_data", k1F1B, "load_batch"},
    {"flipped_bit", kStage1, "adam"},
    {"flipped_bit", kHost, "adam"},
    {"flipped_bit", kZeroBubble, "adam"},
    {"flipped_bit", kOtherWords, "adam"},
    {"flipped_bit", kLion, "lion"},
    {"flipped_bit", kTied, "adam"},
    {"extra_rounding", kStage1, "adam"},
    {"extra_rounding", kStage2, "adam"},
    {"extra_rounding", kGPipe, "adam"},
    {"extra_rounding", kTied, "adam"},
    {"wrong_message", k1F1B, "recv"},
    {"wrong_message", kGPipe, "recv"},
    {"wrong_message", kZeroBubble, "recv"},
    {"wrong_message", kTied, "recv"},
    {"lost_residual", kSigns, "signs"},
    {"lost_residual", kLocalSigns, "signs"},
    {"lost_residual", kFactors, "commit_state"},
    {"lost_residual", kInt4, "commit_state"},
    {"missed_replicated_sum", kTensor, "all_reduce"},
    {"missed_replicated_sum", kTensorStage1, "reduce_scatter"},
    {"missed_replicated_sum", kTensorStage2, "all_reduce"},
    {"missed_replicated_sum", kTensorSlices, "reduce_scatter"},
    {"wrong_heads", kTensor, "attention"},
    {"wrong_heads", kSequenceStage3, "attention"},
    {"wrong_heads", kBothOfEightHeads, "attention"},
    {"wrong_heads", kRecompute, "attention"},
    {"wrong_heads", kTensorRecompute, "attention"},
    {"norm_counted_twice", kTensor, "sum_squares"},
    {"norm_counted_twice", kTensorStage1, "sum_squares"},
    {"norm_counted_twice", kTensorStage2, "sum_squares"},
    {"late_shift", kSequence, "cross_entropy"},
    {"late_shift", kSequenceData, "cross_entropy"},
    {"late_shift", kBoth, "class_sums"},
    {"mask_without_offset", kTensor, "attention"},
    {"mask_without_offset", kSequence, "attention"},
    {"mask_without_offset", kAllAxes, "attention"},
    {"mask_without_offset", kRecompute, "attention"},
};

}  // namespace

TEST_CASE("verify: every seeded fault is found, and its instruction named") {
  const RunFolder folder;
  Sample sample(3);
  for (const SeededCase& seeded : kCases) {
    if (!sample.takes()) continue;
    CAPTURE(seeded.fault, seeded.options);
    const Verified v = verify(folder, std::string(seeded.options) + "--seed_fault " + seeded.fault);
    CAPTURE(v.text);
    CHECK(v.status == 1);
    CHECK(v.text.find("seeded fault: ") != std::string::npos);
    const size_t first = v.text.find("different, first at: ");
    REQUIRE(first != std::string::npos);
    const std::string line = v.text.substr(first, v.text.find('(', first) - first);
    CHECK(line.find(seeded.instruction) != std::string::npos);
  }
}

TEST_CASE("verify: configurations of every feature compute what plain training does") {
  const RunFolder folder;
  Sample sample(2);
  for (const char* options :
       {kStage1,
        kStage2,
        kStage3,
        k1F1B,
        kGPipe,
        kZeroBubble,
        kSigns,
        kFactors,
        kInt4,
        kHost,
        "--set optimizer.type=ZeroOneAdam",
        "--set optimizer.type=OneBitLamb",
        "--set dstrain.comm_hook.type=post_localSGD --set dstrain.comm_hook.start_localSGD_iter=9",
        "--set zero_optimization.stage=3 --set dstrain.sharding=HYBRID_SHARD",
        kTied,
        kTiedZeroBubble,
        "--set optimizer.type=Muon --set zero_optimization.stage=2",
        "--set optimizer.type=Lamb --set fp16.enabled=true --set zero_optimization.stage=1",
        "--set sparse_gradients=true --set dstrain.model.vocab_size=50000 --set train_batch_size=2",
        "--set bf16.enabled=true --set zero_optimization.stage=3 "
        "--set zero_optimization.offload_param.device=nvme "
        "--set zero_optimization.offload_param.nvme_path=tmp "
        "--set zero_optimization.offload_optimizer.device=nvme "
        "--set zero_optimization.offload_optimizer.nvme_path=tmp",
        kTensor,
        kTensorStage1,
        kTensorStage2,
        kSequence,
        kSequenceStage3,
        kSequenceData,
        kBoth,
        kAllAxes,
        "--num_gpus 2 --set tensor_parallel.autotp_size=2 --set dstrain.model.tied_head=true "
        "--set fp16.enabled=true",
        "--num_gpus 2 --set tensor_parallel.autotp_size=2 --set zero_optimization.stage=3 "
        "--set dstrain.recompute=1 --set zero_optimization.offload_param.device=cpu "
        "--set zero_optimization.offload_optimizer.device=cpu",
        "--deep --num_gpus 4 --set tensor_parallel.autotp_size=2 --set zero_optimization.stage=1",
        "--deep --set zero_optimization.stage=2",
        "--deep --set bf16.enabled=true --num_gpus 1",
        "--data text.txt --set zero_optimization.stage=1"}) {
    if (!sample.takes()) continue;
    CAPTURE(options);
    const Verified v = verify(folder, options);
    CAPTURE(v.text);
    CHECK(v.status == 0);
  }
}

TEST_CASE("verify: data of which the first tokens of every document do not count") {
  const RunFolder folder;
  constexpr size_t kDocuments = 48, kTokens = 32, kAnswer = 8;
  std::string ids, counts, documents;
  const auto number = [](std::string& to, uint64_t value, int bytes) {
    for (int b = 0; b < bytes; ++b) to += static_cast<char>(value >> (8 * b) & 0xFF);
  };
  for (size_t i = 0; i < kDocuments * kTokens; ++i) {
    number(ids, i * 7 % 1000, 2);
    number(counts, i % kTokens >= kTokens - kAnswer ? 1 : 0, 1);
  }
  for (size_t d = 0; d <= kDocuments; ++d) number(documents, d * kTokens, 8);
  folder.write("t.bin", ids);
  folder.write("t.bin.targets", counts);
  folder.write("t.bin.documents", documents);
  for (const char* packing : {"none", "pack", "pad"}) {
    CAPTURE(packing);
    const Verified v = verify(
        folder,
        fmt::format("--data t.bin --set dstrain.data.format=bin --set dstrain.data.packing={}",
                    packing));
    CAPTURE(v.text);
    CHECK(v.status == 0);
    CHECK(v.text.find("16 of the 32 tokens of each") != std::string::npos);
  }
}

TEST_CASE("verify: a seeded fault without effect is not equal") {
  const RunFolder folder;
  const Verified v = verify(folder, "--set dstrain.model.dropout=1e-9 --seed_fault mask_offset");
  CAPTURE(v.text);
  CHECK(v.status == 1);
  CHECK(v.text.find("the seeded fault has changed no value") != std::string::npos);
  CHECK(v.text.find("\nnot compared: ") != std::string::npos);
  CHECK(v.text.find("\nequal: ") == std::string::npos);
}

TEST_CASE("verify: the configurations that come with the program, and where it reads no data") {
  const RunFolder folder;
  for (const auto& entry : fs::directory_iterator(DSTRAIN_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path());
    RunningProgram program =
        folder.start(std::string(DSTRAIN_PROGRAM) + " verify --config " + entry.path().string());
    // Its data are not the program's.
    const bool lacks_data = entry.path().filename() == "resnet_cifar10.json";
    CHECK(program.wait() == (lacks_data ? 1 : 0));
    CAPTURE(program.text());
    CHECK(program.wrote(lacks_data ? "cifar-10-batches-bin is not there" : "equal: "));
  }
}

TEST_CASE("verify: the configurations of other projects that train") {
  const std::string corpus = DSTRAIN_SOURCE_DIR "/../shared/corpus/ds_configs";
  SKIP_UNLESS(fs::is_directory(corpus), "there is no " + corpus);
  const RunFolder folder;
  Sample sample(10);
  int trained = 0;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    if (entry.path().extension() != ".json" || !sample.takes()) continue;
    CAPTURE(entry.path());
    RunningProgram program =
        folder.start(std::string(DSTRAIN_PROGRAM) + " verify --config " + entry.path().string());
    const int status = program.wait();
    CAPTURE(program.text());
    const bool refused = program.wrote(entry.path().string() + ":");  // it does not train either
    CHECK((status == 0 || refused));
    if (status == 0) ++trained;
  }
  CHECK(trained > 0);
}

TEST_CASE("verify: the JSON names the first difference") {
  const RunFolder folder;
  const auto clean = nlohmann::json::parse(verify(folder, "--json").text);
  CHECK(clean["equal"] == true);
  CHECK(clean["verdict"] == "equal");
  CHECK(clean["steps"] == 4);
  CHECK(clean["first"].is_null());
  CHECK(clean["tensors"].size() == 2 + 3 * 11 + 3);
  for (const auto& tensor : clean["tensors"]) {
    CHECK(tensor["bitwise"] == true);
    CHECK(tensor["gradient_error"].get<double>() <= clean["tolerance"].get<double>());
  }
  const auto found =
      nlohmann::json::parse(verify(folder, "--json --steps 3 --seed_fault mask_offset").text);
  CHECK(found["equal"] == false);
  CHECK(found["steps"] == 3);
  CHECK(found["first"]["rank"] == 1);
  CHECK(found["first"]["micro_batch"] == 0);
  CHECK(found["first"]["instruction"] == "attention blocks.0");
}

TEST_CASE("verify: what it cannot do it refuses before it trains") {
  const RunFolder folder;
  const auto error = [&](const std::string& options) {
    const Verified v = verify(folder, options);
    CHECK(v.status == 1);
    return only_error(v.text);
  };
  CHECK(error("--seed_fault wrong_message").find("it has no pipeline") != std::string::npos);
  CHECK(error("--seed_fault late_shift").find("it has no two sequence ranks") != std::string::npos);
  CHECK(error("--seed_fault dropped").find("expected one of dropped_gather") != std::string::npos);
  CHECK(error("--set dstrain.model.dropout=0 --seed_fault mask_offset")
            .find("has nothing that it could change") != std::string::npos);
  CHECK(error("--steps 1").find("two steps or more") != std::string::npos);
  CHECK(error("--data nowhere.txt").find("nowhere.txt is not there") != std::string::npos);
}

}  // namespace dstrain
