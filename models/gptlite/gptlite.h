// GPT-lite: token + position embedding, pre-norm blocks (x += attn(ln1(x)); x += mlp(ln2(x))),
// final norm, language-model head. With gelu, qkv_bias and tied_head it is GPT-2 (Radford et al.,
// 2019).
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gptlite();

}  // namespace dstrain
