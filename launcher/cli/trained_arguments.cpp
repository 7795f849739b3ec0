#include "launcher/cli/trained_arguments.h"

#include "launcher/cli/command_line.h"
#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "launcher/cli/text_arguments.h"
#include "runtime/config/solve/solve_precision.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

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
  add_trained(line, a);
  line.option("--data", "FILE",
              "a file as the run's data: text, bytes or token ids, arrays or images", text(a.data));
  add_chat_template(line, a.chat_template);
  line.option("--seq_len", "N", "tokens of a window (those of the model's samples)",
              integer(a.seq_len, 1));
  add_device(line, a);
  line.group(heading::kWritten);
  line.option("--logits", "FILE", "write the logits of the first window (safetensors)",
              text(a.logits));
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  check_trained("eval", a);
  require("eval", "--data FILE", !a.data.empty());
  return a;
}

Arguments parse_teach(const std::vector<std::string>& words) {
  TeachArguments a;
  CommandLine line("teach",
                   "Writes FILE.teacher: what a trained model, the teacher, gives to the likeliest "
                   "tokens behind each token of a file. A run on the same file with "
                   "dstrain.objective.type \"distill\" learns from it. Both models have the same "
                   "tokens.");
  line.example("dstrain teach --model ./qwen-7b --data chats.bin --seq_len 2048", "of a model");
  line.example("dstrain teach --run runs/large --data chats.bin --top_k 32",
               "of a run, for dstrain.objective.teacher_top_k 32");
  line.example(
      "dstrain teach --model ./qwen-7b --data texts.bin --windows --output texts.bin.teacher",
      "of windows of the whole text");
  line.group(heading::kMeasured);
  add_trained(line, a);
  line.option("--data", "FILE", "the token file that the run reads", text(a.data));
  line.option("--seq_len", "N", "tokens of the run's samples (those of this model's)",
              integer(a.seq_len, 2));
  line.flag("--windows",
            "read windows of N tokens, as runs without dstrain.data.packing do, although "
            "FILE.documents says where documents begin",
            a.windows);
  add_device(line, a);
  line.group(heading::kWritten);
  line.option("--top_k", "K", "tokens at each place (64)", integer(a.top_k, 1, 1023));
  line.option("--output", "FILE", "the file (FILE.teacher beside the data)", text(a.output));
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  check_trained("teach", a);
  require("teach", "--data FILE", !a.data.empty());
  return a;
}

namespace {

// Reads --dtype of export. llama.cpp has shorter names.
void read_dtype(const std::string& option, const std::string& value, ExportArguments& a) {
  a.q8_0 = value == "q8_0";
  a.dtype.reset();
  if (a.q8_0) return;
  if (!one_of("fp32|float32|f32|bf16|bfloat16|fp16|float16|f16", value))
    fail_user("{}: expected fp32, bf16, fp16 or q8_0, got '{}'", option, printable(value));
  a.dtype = value == "f32" ? DType::f32 : value == "f16" ? DType::f16 : dtype_named(value);
}

}  // namespace

Arguments parse_export(const std::vector<std::string>& words) {
  ExportArguments a;
  std::vector<std::string> runs;
  std::string format;
  CommandLine line(
      "export",
      "Writes the weights of RUN, the output directory of a run or one of its "
      "checkpoints, in other programs' files: a whole folder that transformers open "
      "(hf), model.safetensors with the names of the run's own model (safetensors), "
      "the files of its adapters (peft), or model.gguf with the tokenizer in it, which "
      "llama.cpp opens (gguf).");
  line.example("dstrain export runs/ds_config --format hf", "a folder for from_pretrained");
  line.example("dstrain export runs/ds_config --format safetensors --dtype bf16",
               "the weights alone, in 16 bits");
  line.example("dstrain export runs/lora --merge", "a folder with the run's adapters merged in");
  line.example("dstrain export runs/ds_config/checkpoints/step_400 --format hf --output model",
               "of a checkpoint, into a folder");
  line.example("dstrain export runs/ds_config --format gguf --dtype q8_0",
               "a file for llama.cpp, in 8 bits");
  line.operands("RUN", runs);
  line.group(heading::kWritten);
  line.option("--format", "hf|safetensors|peft|gguf", "what is written (with --merge: hf)",
              text(format));
  line.flag("--merge", "write the model with the run's adapters in its weights", a.merge);
  line.option("--output", "DIR",
              "the folder (export/FORMAT in the run's output directory, of a checkpoint "
              "export/FORMAT_step_N)",
              text(a.output));
  line.option(
      "--dtype", "fp32|bf16|fp16|q8_0",
      "of the weights in files (hf, gguf: as in the run's own; safetensors: fp32); q8_0: "
      "gguf alone",
      [&a](const std::string& option, const std::string& value) { read_dtype(option, value, a); });
  line.flag("--overwrite", "replace the weights of another model in the folder", a.overwrite);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("export", "RUN", !runs.empty());
  if (runs.size() > 1)
    fail_user("dstrain export takes one RUN, got '{}' and '{}'", printable(runs[0]),
              printable(runs[1]));
  text(a.run)("RUN", runs.front());
  if (format.empty() && a.merge) format = "hf";
  require("export", "--format hf|safetensors|peft|gguf, or --merge", !format.empty());
  if (!one_of("hf|safetensors|peft|gguf", format))
    fail_user("--format: expected hf, safetensors, peft or gguf, got '{}'", printable(format));
  a.hugging_face = format == "hf";
  a.peft = format == "peft";
  a.gguf = format == "gguf";
  if (a.q8_0 && !a.gguf)
    fail_user("--dtype q8_0: --format {} has no such weights: --format gguf has", format);
  if (a.peft && a.merge)
    fail_user(
        "dstrain export: --format peft writes the adapters alone, and --merge the model with them: "
        "leave one out");
  return a;
}

Arguments parse_import(const std::vector<std::string>& words) {
  ImportArguments a;
  std::vector<std::string> paths;
  CommandLine line(
      "import",
      "Writes weights that PyTorch or DeepSpeed has saved as a folder that --model opens, "
      "and from_pretrained. PATH is a file of torch.save, or a folder with "
      "pytorch_model.bin or DeepSpeed's checkpoints, of which the fp32 masters are put together. "
      "No code in them is run.");
  line.example("dstrain import ./old-gpt2 --output gpt2",
               "a folder with config.json and pytorch_model.bin");
  line.example("dstrain import last.ckpt --output weights",
               "a dict of tensors, or one with a state_dict");
  line.example("dstrain import checkpoint-500 --output model",
               "DeepSpeed's latest checkpoint in a folder");
  line.example("dstrain import gan.pt --key generator --output generator",
               "a part of what a file has");
  line.operands("PATH", paths);
  line.group(heading::kRead);
  line.option("--key", "NAME",
              "the key of the file's dict that has the weights (state_dict, model_state_dict, "
              "model or module, where the dict has no tensors itself)",
              text(a.key));
  line.option("--tag", "NAME", "one of DeepSpeed's checkpoints (the latest)", text(a.tag));
  line.flag("--keep_names",
            "keep all names: a prefix that all have (module., _orig_mod., and without config.json "
            "model.), and without config.json the second name of a weight",
            a.keep_names);
  line.group(heading::kWritten);
  line.option("--output", "DIR", "the folder", text(a.output));
  line.flag("--optimizer_state",
            "write the state of a DeepSpeed checkpoint's optimizer to DIR/optimizer too, which "
            "dstrain.optimizer_state goes on from",
            a.optimizer_state);
  line.flag("--overwrite", "replace another model in the folder", a.overwrite);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("import", "PATH", !paths.empty());
  if (paths.size() > 1)
    fail_user("dstrain import takes one PATH, got '{}' and '{}'", printable(paths[0]),
              printable(paths[1]));
  text(a.path)("PATH", paths.front());
  require("import", "--output DIR", !a.output.empty());
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
