#include "launcher/cli/trained_arguments.h"

#include <limits>

#include "launcher/cli/command_line.h"
#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "runtime/config/solve/solve_precision.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Adds the options that name a trained model: a run's, or one in a folder.
void add_trained(CommandLine& line, std::string& run_dir, std::string& model,
                 std::vector<std::string>& ignored) {
  line.option("--run", "DIR", "the output directory of a run, or one of its checkpoints",
              text(run_dir));
  line.option("--model", "DIR", "a folder with config.json and weights, instead of a run",
              text(model));
  line.repeated("--ignore", "path.to.key",
                "treat a key of DIR's config.json, or several (a,b), as if it were not there",
                keys(ignored));
}

void add_chat_template(CommandLine& line, std::string& chat_template) {
  line.option("--chat_template", "chatml|llama3|qwen|FILE",
              "how messages are written; otherwise as the directory says", text(chat_template));
}

// Throws UserError unless the options name one model.
void check_trained(const std::string& command, const std::string& run_dir, const std::string& model,
                   const std::vector<std::string>& ignored) {
  require(command, "--run DIR or --model DIR", !run_dir.empty() || !model.empty());
  if (!run_dir.empty() && !model.empty())
    fail_user("dstrain {} takes one of --run DIR and --model DIR", command);
  if (!ignored.empty() && model.empty())
    fail_user(
        "dstrain {}: --ignore is for a key of config.json in the folder of --model DIR, and --run "
        "has none",
        command);
}

}  // namespace

Arguments parse_generate(const std::vector<std::string>& words) {
  GenerateArguments a;
  CommandLine line("generate",
                   "Continues a prompt with a trained model. Without --prompt and --prompt_ids the "
                   "prompt is the "
                   "standard input.");
  line.example("dstrain generate --run runs/ds_config --prompt \"In the beginning\"",
               "continue a text");
  line.example("dstrain generate --run runs/ds_config --prompt To --temperature 0",
               "always by the likeliest token");
  line.example("dstrain generate --model ./gpt2 --prompt To", "with the model in a folder");
  line.example("dstrain generate --run runs/ds_config/checkpoints/step_400",
               "from a checkpoint; the prompt is the standard input");
  line.group(heading::kRead);
  add_trained(line, a.run_dir, a.model, a.ignored);
  line.option("--device", "auto|cpu|cuda", "where to run (auto: on a GPU where there is one)",
              text(a.device));
  line.option("--prompt", "TEXT", "the text to continue",
              [&a](const std::string&, const std::string& value) { a.prompt = value; });
  line.option("--prompt_ids", "1,2,3", "the token ids to continue",
              [&a](const std::string& option, const std::string& value) {
                a.prompt_ids = token_ids(option, value);
              });
  line.group(heading::kWritten);
  line.option("--tokens", "N", "tokens to add (200)", integer(a.tokens, 0));
  line.option("--temperature", "F", "1 as trained, 0 greedy (1)",
              [&a](const std::string& option, const std::string& value) {
                a.temperature =
                    number_of<double>(option, value, 0, 1e6, "a number from 0 to 1000000");
              });
  line.option("--top_k", "N", "draw from the N likeliest; 0: all (0)", integer(a.top_k, 0));
  line.option("--top_p", "F", "draw from the likeliest that together have probability F (1)",
              [&a](const std::string& option, const std::string& value) {
                a.top_p = number_of<double>(option, value, std::numeric_limits<double>::min(), 1,
                                            "a number above 0, up to 1");
              });
  line.option("--seed", "N", "same seed, same text (1337)",
              [&a](const std::string& option, const std::string& value) {
                a.seed =
                    number_of<uint64_t>(option, value, 0, ~uint64_t{0}, "an integer from 0 up");
              });
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  check_trained("generate", a.run_dir, a.model, a.ignored);
  if (a.prompt && a.prompt_ids)
    fail_user("dstrain generate takes one of --prompt TEXT and --prompt_ids 1,2,3");
  return a;
}

Arguments parse_eval(const std::vector<std::string>& words) {
  EvalArguments a;
  CommandLine line("eval",
                   "Prints the loss, perplexity, bits per byte and accuracy of a trained model on "
                   "a whole file, or the loss and the metrics of one that reads arrays or images. "
                   "Trains nothing.");
  line.example("dstrain eval --run runs/ds_config --data other.txt", "of a run");
  line.example("dstrain eval --model ./gpt2 --data other.txt", "of the model in a folder");
  line.example("dstrain eval --run runs/resnet_cifar10 --data cifar-10-batches-bin/test_batch.bin",
               "of a run on images");
  line.example("dstrain eval --model ./qwen --ignore dstrain.model.new_field --data other.txt",
               "of one whose config.json has a field that is unknown here");
  line.example("dstrain eval --run runs/ds_config --data other.txt --json", "for a program");
  line.group(heading::kMeasured);
  add_trained(line, a.run_dir, a.model, a.ignored);
  line.option("--data", "FILE",
              "a file as the run's data: text, bytes or token ids, arrays or images", text(a.data));
  add_chat_template(line, a.chat_template);
  line.option("--seq_len", "N", "tokens of a window (those of the model's samples)",
              integer(a.seq_len, 1));
  line.option("--device", "auto|cpu|cuda", "where to run (auto: on a GPU where there is one)",
              text(a.device));
  line.group(heading::kWritten);
  line.option("--logits", "FILE", "write the logits of the first window (safetensors)",
              text(a.logits));
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  check_trained("eval", a.run_dir, a.model, a.ignored);
  require("eval", "--data FILE", !a.data.empty());
  return a;
}

Arguments parse_export(const std::vector<std::string>& words) {
  ExportArguments a;
  std::vector<std::string> runs;
  std::string format;
  CommandLine line("export",
                   "Writes the weights of RUN, the output directory of a run or one of its "
                   "checkpoints, in other programs' files: a whole folder that transformers open "
                   "(hf), model.safetensors with the names of the run's own model (safetensors), "
                   "or the files of its adapters (peft).");
  line.example("dstrain export runs/ds_config --format hf", "a folder for from_pretrained");
  line.example("dstrain export runs/ds_config --format safetensors --dtype bf16",
               "the weights alone, in 16 bits");
  line.example("dstrain export runs/lora --merge", "a folder with the run's adapters merged in");
  line.example("dstrain export runs/ds_config/checkpoints/step_400 --format hf --output model",
               "of a checkpoint, into a folder");
  line.operands("RUN", runs);
  line.group(heading::kWritten);
  line.option("--format", "hf|safetensors|peft", "what is written (with --merge: hf)",
              text(format));
  line.flag("--merge", "write the model with the run's adapters in its weights", a.merge);
  line.option("--output", "DIR",
              "the folder (export/FORMAT in the run's output directory, of a checkpoint "
              "export/FORMAT_step_N)",
              text(a.output));
  line.option("--dtype", "fp32|bf16|fp16",
              "of the weights in files (hf: as in the run's own; safetensors: fp32)",
              [&a](const std::string& option, const std::string& value) {
                if (!one_of("fp32|float32|bf16|bfloat16|fp16|float16", value))
                  fail_user("{}: expected fp32, bf16 or fp16, got '{}'", option, printable(value));
                a.dtype = dtype_named(value);
              });
  line.flag("--overwrite", "replace the weights of another model in the folder", a.overwrite);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("export", "RUN", !runs.empty());
  if (runs.size() > 1)
    fail_user("dstrain export takes one RUN, got '{}' and '{}'", printable(runs[0]),
              printable(runs[1]));
  text(a.run)("RUN", runs.front());
  if (format.empty() && a.merge) format = "hf";
  require("export", "--format hf|safetensors|peft, or --merge", !format.empty());
  if (!one_of("hf|safetensors|peft", format))
    fail_user("--format: expected hf, safetensors or peft, got '{}'", printable(format));
  a.hugging_face = format == "hf";
  a.peft = format == "peft";
  if (a.peft && a.merge)
    fail_user(
        "dstrain export: --format peft writes the adapters alone, and --merge the model with them: "
        "leave one out");
  return a;
}

Arguments parse_tokenize(const std::vector<std::string>& words) {
  TokenizeArguments a;
  CommandLine line(
      "tokenize",
      "Writes the token ids of text files, by the tokenizer of a Hugging Face directory. A file "
      "FILE.jsonl has a document in each line: its \"text\", \"messages\", or \"prompt\" and "
      "\"completion\"; any other one is a document.");
  line.example("dstrain tokenize --model ./gpt2 --data a.txt b.jsonl --output a.bin",
               "of two files");
  line.example("dstrain tokenize --model ./qwen --data chats.jsonl --output chats.bin",
               "conversations, by the model's chat template");
  line.example(
      "dstrain tokenize --model ./gpt2 --data chats.jsonl --output chats.bin "
      "--chat_template chatml",
      "by another template");
  line.group(heading::kRead);
  line.option("--model", "DIR", "a directory with a tokenizer.json", text(a.model));
  line.list("--data", "FILE...", "the text files, in order",
            [&a](const std::string& option, const std::string& value) {
              text(a.files.emplace_back())(option, value);
            });
  line.flag("--skip_invalid", "leave out invalid lines of FILE.jsonl", a.skip_invalid);
  line.group(heading::kWritten);
  line.option("--output", "FILE.bin", "the token file", text(a.output));
  line.flag("--no_eos", "put no end-of-text token behind documents of FILE.jsonl", a.no_eos);
  add_chat_template(line, a.chat_template);
  line.option("--loss_on", "assistant|completion|all",
              "the tokens that count in the loss (of messages assistant, as a rule)",
              [&a](const std::string& option, const std::string& value) {
                if (!one_of("assistant|completion|all", value))
                  fail_user("{}: expected assistant, completion or all, got '{}'", option,
                            printable(value));
                a.loss_on = value;
              });
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("tokenize", "--model DIR", !a.model.empty());
  require("tokenize", "--data FILE...", !a.files.empty());
  require("tokenize", "--output FILE.bin", !a.output.empty());
  return a;
}

}  // namespace dstrain
