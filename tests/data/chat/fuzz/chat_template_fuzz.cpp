// Reads any bytes as a chat template, which renders a conversation or ends with one UserError. .ci/run limits the memory.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/jinja/json_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const dstrain::ChatTemplate chat_template({reinterpret_cast<const char*>(data), size}, "t",
                                              {{"bos_token", "<s>"}});
    dstrain::jinja::Limits limits;
    limits.steps = 20'000;
    dstrain::jinja::Meter meter = chat_template.meter(limits);
    const dstrain::jinja::Value messages = dstrain::jinja::parse_json(
        R"([{"role": "user", "content": "a b"}, {"role": "assistant", "content": "é", "n": [1, 2.5, null, {"x": true}]}])");
    const auto rendered = chat_template.render(messages, true, meter);
    size_t end = 0;
    for (const auto& range : rendered.generated) {
      if (range.begin < end || range.end < range.begin || range.end > rendered.text.size())
        std::abort();
      end = range.end;
    }
  } catch (const dstrain::UserError&) {
  }
  return 0;
}
