"""Cases of make_golden.py: decoders of today's libraries, each forward written from its paper or model
card: Gemma, Phi, OPT, GPT-J, StarCoder, Falcon, BLOOM, MPT, StableLM, OLMo, Granite, Cohere, GLM,
InternLM2, SmolLM3, gpt-oss, DeepSeek, Llama 4 and other mixtures of experts.  Plain float64 PyTorch, one function a family.

Beside the layouts of make_golden.py:

    sandwich    those of pre-norm; `sa` and the feed-forward branch have passed a norm of their own
    branch      in, sa, attn = in + sa, ffn = attn + LN(FFN(attn)), out; sa = LN(SA(in))
    one-norm    in, norm1, sa, ffn = in + sa + FFN(norm1), out
"""
import math

import torch

g = None  # make_golden


def visible(n, window=None):
    return g.causal(n, window)


def frequencies(columns, base, n):
    return torch.arange(n).double()[:, None] * base ** (-torch.arange(0, columns, 2).double() / columns)


def rotate_neighbours(x, angles):
    """Columns 2 i and 2 i + 1 of the first 2 * angles.shape[1] are a pair."""
    half = angles.shape[1]
    cos, sin = torch.cos(angles), torch.sin(angles)
    pairs = x[..., :2 * half].reshape(*x.shape[:-1], half, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([turned, x[..., 2 * half:]], -1)


def attend(q, k, v, scale, seen, cap=None, bias=None):
    """q (h, n, w), k and v (h', n, w)."""
    groups = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
    logits = scale * (q @ k.transpose(1, 2))
    if cap:
        logits = cap * torch.tanh(logits / cap)
    if bias is not None:
        logits = logits + bias
    p = torch.softmax(logits.masked_fill(~seen, -g.INF), -1)
    return p, g.join_heads(p @ v)


def slopes(heads):
    """Of ALiBi, 2^(-8 k / H) for H a power of two."""
    return torch.tensor([2 ** (-8 * (k + 1) / heads) for k in range(heads)], dtype=torch.float64)


def alibi(heads, n):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    return slopes(heads)[:, None, None] * (j - i).double()


def one_norm(t, layer, x, norm, attention, ffn):
    t.stage(layer, "in", x)
    y = t.stage(layer, "norm1", norm(x))
    p, sa = attention(y)
    t.stage(layer, "attentions", p)
    t.stage(layer, "sa", sa)
    return t.stage(layer, "out", t.stage(layer, "ffn", x + sa + ffn(y)))


def branch(t, layer, x, attention, norm1, ffn, norm2):
    t.stage(layer, "in", x)
    p, sa = attention(x)
    t.stage(layer, "attentions", p)
    y = t.stage(layer, "attn", x + t.stage(layer, "sa", norm1(sa)))
    return t.stage(layer, "out", t.stage(layer, "ffn", y + norm2(ffn(y))))


def gated(l, x, act, stem="mlp."):
    return g.affine(l, stem + "down_proj", act(g.affine(l, stem + "gate_proj", x)) * g.affine(l, stem + "up_proj", x))


def projections(l, x, heads, groups, stem="self_attn."):
    return tuple(g.split_heads(g.affine(l, stem + part, x), h)
                 for part, h in (("q_proj", heads), ("k_proj", groups), ("v_proj", groups)))


# ---------------------------------------------------------------------------------------------------
# Gemma

def forward_gemma(w, c, ids):
    w = g.under(w, "model.")
    heads, groups, hd, eps, n = (c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"], len(ids))
    second, third = c["model_type"] == "gemma2", c["model_type"] == "gemma3_text"
    norm = lambda weights, name, x: g.rms_norm(1 + weights[name + ".weight"], x, eps)
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids] * math.sqrt(c["hidden_size"])
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")
        slides = second and layer % 2 == 0 or third and (layer + 1) % c["sliding_window_pattern"] != 0
        base = c["rope_local_base_freq"] if third and slides else c["rope_theta"]
        angles = frequencies(hd, base, n)
        scalar = c["query_pre_attn_scalar"] if second or third else hd

        def attention(x):
            q, k, v = projections(l, x, heads, groups)
            if third:
                q, k = norm(l, "self_attn.q_norm", q), norm(l, "self_attn.k_norm", k)
            p, o = attend(g.rotate(q, angles), g.rotate(k, angles), v, scalar ** -0.5,
                          visible(n, c["sliding_window"] if slides else None), c.get("attn_logit_softcapping"))
            o = g.affine(l, "self_attn.o_proj", o)
            return p, norm(l, "post_attention_layernorm", o) if second or third else o

        def ffn(x):
            y = gated(l, x, g.gelu_new)
            return norm(l, "post_feedforward_layernorm", y) if second or third else y

        before = "pre_feedforward_layernorm" if second or third else "post_attention_layernorm"
        x = g.pre_norm(t, layer, x, lambda x: norm(l, "input_layernorm", x), attention, lambda x: norm(l, before, x), ffn)
    t["final_norm"] = norm(w, "norm", x)
    return t


def make_gemma(name, model, layout="pre-norm", n=8, note=None, **changes):
    d, heads, groups, hd, ff, layers = 16, 4, 2, 6, 20, changes.pop("num_hidden_layers", 2)
    c = {"architectures": [model + "ForCausalLM"], "hidden_size": d, "intermediate_size": ff, "num_hidden_layers": layers,
         "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": hd, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 16,
         "attention_bias": False, "vocab_size": 24, **changes}
    draw = g.Draw(name)
    small = lambda stem, width: draw.put(stem + ".weight", width, std=0.25)  # 1 + w multiplies
    draw.put("model.embed_tokens.weight", 24, d, std=0.2)
    for layer in range(layers):
        l = f"model.layers.{layer}."
        small(l + "input_layernorm", d)
        draw_projections(draw, l + "self_attn.", d, heads, groups, hd)
        small(l + "post_attention_layernorm", d)
        if layout == "sandwich":
            small(l + "pre_feedforward_layernorm", d)
            small(l + "post_feedforward_layernorm", d)
        if c["model_type"] == "gemma3_text":
            small(l + "self_attn.q_norm", hd)
            small(l + "self_attn.k_norm", hd)
        draw_gated(draw, l + "mlp.", d, ff)
    small("model.norm", d)
    trace = forward_gemma(g.widen(draw.weights), c, draw.ids(n, 24))
    return [g.finish(name, c["model_type"], layout, trace, heads, draw.weights, c, note=note)]


def draw_projections(draw, stem, d, heads, groups, hd, bias=False, out_bias=False):
    draw.linear(stem + "q_proj", d, heads * hd, bias=bias)
    draw.linear(stem + "k_proj", d, groups * hd, bias=bias)
    draw.linear(stem + "v_proj", d, groups * hd, bias=bias)
    draw.linear(stem + "o_proj", heads * hd, d, bias=out_bias)


def draw_gated(draw, stem, d, ff):
    draw.linear(stem + "gate_proj", d, ff, bias=False)
    draw.linear(stem + "up_proj", d, ff, bias=False)
    draw.linear(stem + "down_proj", ff, d, bias=False)


def gemma(name):
    return make_gemma(name, "Gemma", model_type="gemma", note="norms 1 + w, heads of 6 of 16 columns")


def gemma2(name):
    return make_gemma(name, "Gemma2", "sandwich", model_type="gemma2", query_pre_attn_scalar=9, attn_logit_softcapping=1.5,
                      final_logit_softcapping=30.0, sliding_window=3, note="logits capped at 1.5; windows of 3 in layer 0")


def gemma3(name):
    return make_gemma(name, "Gemma3Text", "sandwich", model_type="gemma3_text", query_pre_attn_scalar=9, sliding_window=3,
                      attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window_pattern=3,
                      num_hidden_layers=3, rope_theta=1e6, rope_local_base_freq=100.0,
                      note="windows in layers 0 and 1, which rotate by base 100")


# ---------------------------------------------------------------------------------------------------
# The others.  Each takes the float64 weights by their names, the configuration and ids.

def affine_layer_norm(weights, name, eps):
    return lambda x: g.layer_norm(weights, name, x, eps)


def scaled_rms(weights, name, eps):
    return lambda x: g.rms_norm(weights[name + ".weight"], x, eps)


def plain_norm(x, eps):
    y = x - x.mean(-1, keepdim=True)
    return y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + eps)


def forward_phi(w, c, ids):
    """Phi-2: x + A(LN x) + MLP(LN x)."""
    w = g.under(w, "model.")
    heads, n, eps = c["num_attention_heads"], len(ids), c["layer_norm_eps"]
    hd = c["hidden_size"] // heads
    angles = frequencies(int(c["partial_rotary_factor"] * hd), c["rope_theta"], n)
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")

        def attention(x):
            q, k, v = projections(l, x, heads, heads)
            p, o = attend(g.rotate(q, angles), g.rotate(k, angles), v, hd ** -0.5, visible(n))
            return p, g.affine(l, "self_attn.dense", o)

        x = one_norm(t, layer, x, affine_layer_norm(l, "input_layernorm", eps), attention,
                     lambda y: g.affine(l, "mlp.fc2", g.gelu_new(g.affine(l, "mlp.fc1", y))))
    t["final_norm"] = g.layer_norm(w, "final_layernorm", x, eps)
    return t


def forward_fused(w, c, ids, neighbours=False):
    """Phi-3: rows of qkv_proj are all queries, then keys, then values; gate_up_proj gate, then up.  GLM: separate
    q, k, v; half of each head rotates, neighbours together; GLM-4-0414 with norms of the branches."""
    w = g.under(w, "model.")
    heads, groups, n, eps = c["num_attention_heads"], c["num_key_value_heads"], len(ids), c["rms_norm_eps"]
    hd = c.get("head_dim") or c["hidden_size"] // heads
    angles = torch.arange(n).double()[:, None] * g.inverse_frequencies(c, int(c.get("partial_rotary_factor", 1) * hd), n)
    turn = rotate_neighbours if neighbours else lambda x, angles: g.rotate(x, angles, g.stretch(c))
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")
        last = lambda name, y: g.rms_norm(l[name + ".weight"], y, eps) if name + ".weight" in l else y

        def attention(x):
            if "self_attn.qkv_proj.weight" in l:
                q, k, v = torch.split(g.affine(l, "self_attn.qkv_proj", x), [heads * hd, groups * hd, groups * hd], -1)
                q, k, v = g.split_heads(q, heads), g.split_heads(k, groups), g.split_heads(v, groups)
            else:
                q, k, v = projections(l, x, heads, groups)
            p, o = attend(turn(q, angles), turn(k, angles), v, hd ** -0.5, visible(n, c.get("sliding_window")))
            return p, last("post_self_attn_layernorm", g.affine(l, "self_attn.o_proj", o))

        def ffn(x):
            gate, up = g.affine(l, "mlp.gate_up_proj", x).chunk(2, -1)
            return last("post_mlp_layernorm", g.affine(l, "mlp.down_proj", g.silu(gate) * up))

        x = g.pre_norm(t, layer, x, scaled_rms(l, "input_layernorm", eps), attention,
                       scaled_rms(l, "post_attention_layernorm", eps), ffn)
    t["final_norm"] = g.rms_norm(w["norm.weight"], x, eps)
    return t


def forward_glm(w, c, ids):
    return forward_fused(w, c, ids, neighbours=True)


def forward_opt(w, c, ids):
    w = g.under(w, "model.decoder.")
    heads, n, eps = c["num_attention_heads"], len(ids), 1e-5
    hd = c["hidden_size"] // heads
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids] + w["embed_positions.weight"][2:2 + n]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")

        def attention(x):
            q, k, v = projections(l, x, heads, heads)
            p, o = attend(q, k, v, hd ** -0.5, visible(n))
            return p, g.affine(l, "self_attn.out_proj", o)

        x = g.pre_norm(t, layer, x, affine_layer_norm(l, "self_attn_layer_norm", eps), attention,
                       affine_layer_norm(l, "final_layer_norm", eps),
                       lambda y: g.affine(l, "fc2", torch.relu(g.affine(l, "fc1", y))))
    t["final_norm"] = g.layer_norm(w, "final_layer_norm", x, eps)
    return t


def forward_bigcode(w, c, ids):
    """Multi-query attention: c_attn gives all queries, then one key and one value."""
    w = g.under(w, "transformer.")
    heads, n, eps, d = c["n_head"], len(ids), c["layer_norm_epsilon"], c["n_embd"]
    hd = d // heads
    t = g.Trace(ids=ids)
    x = t["embed"] = w["wte.weight"][ids] + w["wpe.weight"][:n]
    for layer in range(c["n_layer"]):
        l = g.under(w, f"h.{layer}.")

        def attention(x):
            q, k, v = torch.split(g.affine(l, "attn.c_attn", x), [d, hd, hd], -1)
            p, o = attend(g.split_heads(q, heads), k[None], v[None], hd ** -0.5, visible(n))
            return p, g.affine(l, "attn.c_proj", o)

        x = g.pre_norm(t, layer, x, affine_layer_norm(l, "ln_1", eps), attention, affine_layer_norm(l, "ln_2", eps),
                       lambda y: g.affine(l, "mlp.c_proj", g.gelu_new(g.affine(l, "mlp.c_fc", y))))
    t["final_norm"] = g.layer_norm(w, "ln_f", x, eps)
    return t


def forward_gptj(w, c, ids):
    w = g.under(w, "transformer.")
    heads, n, eps = c["n_head"], len(ids), c["layer_norm_epsilon"]
    hd = c["n_embd"] // heads
    angles = frequencies(c["rotary_dim"], 10000.0, n)
    t = g.Trace(ids=ids)
    x = t["embed"] = w["wte.weight"][ids]
    for layer in range(c["n_layer"]):
        l = g.under(w, f"h.{layer}.")

        def attention(x):
            q, k, v = projections(l, x, heads, heads, "attn.")
            p, o = attend(rotate_neighbours(q, angles), rotate_neighbours(k, angles), v, hd ** -0.5, visible(n))
            return p, g.affine(l, "attn.out_proj", o)

        x = one_norm(t, layer, x, affine_layer_norm(l, "ln_1", eps), attention,
                     lambda y: g.affine(l, "mlp.fc_out", g.gelu_new(g.affine(l, "mlp.fc_in", y))))
    t["final_norm"] = g.layer_norm(w, "ln_f", x, eps)
    return t


def grouped_qkv(y, heads, groups):
    """(n, (heads + 2 groups) hd): each group's queries, then its key, then its value."""
    n, each = y.shape[0], heads // groups
    y = y.view(n, groups, each + 2, -1)
    q = y[:, :, :each].reshape(n, heads, -1)
    return tuple(part.transpose(0, 1) for part in (q, y[:, :, each], y[:, :, each + 1]))


def forward_falcon(w, c, ids):
    w = g.under(w, "transformer.")
    heads, n, eps = c["num_attention_heads"], len(ids), c["layer_norm_epsilon"]
    groups = c["num_kv_heads"] if c["new_decoder_architecture"] else 1
    hd = c["hidden_size"] // heads
    angles = frequencies(hd, c["rope_theta"], n)
    t = g.Trace(ids=ids)
    x = t["embed"] = w["word_embeddings.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"h.{layer}.")

        def attention(x):
            q, k, v = grouped_qkv(g.affine(l, "self_attention.query_key_value", x), heads, groups)
            p, o = attend(g.rotate(q, angles), g.rotate(k, angles), v, hd ** -0.5, visible(n))
            return p, g.affine(l, "self_attention.dense", o)

        ffn = lambda y: g.affine(l, "mlp.dense_4h_to_h", g.gelu(g.affine(l, "mlp.dense_h_to_4h", y)))
        if "ln_mlp.weight" in l:
            x = g.parallel(t, layer, x, affine_layer_norm(l, "ln_attn", eps), attention,
                           affine_layer_norm(l, "ln_mlp", eps), ffn)
        else:
            x = one_norm(t, layer, x, affine_layer_norm(l, "input_layernorm", eps), attention, ffn)
    t["final_norm"] = g.layer_norm(w, "ln_f", x, eps)
    return t


def forward_bloom(w, c, ids):
    """The logits of key j have slope times j added: for a row that is slope times (j - i), up to a constant."""
    w = g.under(w, "transformer.")
    heads, n, eps = c["n_head"], len(ids), c["layer_norm_epsilon"]
    hd = c["hidden_size"] // heads
    t = g.Trace(ids=ids)
    x = t["embed"] = g.layer_norm(w, "word_embeddings_layernorm", w["word_embeddings.weight"][ids], eps)
    for layer in range(c["n_layer"]):
        l = g.under(w, f"h.{layer}.")

        def attention(x):
            q, k, v = grouped_qkv(g.affine(l, "self_attention.query_key_value", x), heads, heads)
            p, o = attend(q, k, v, hd ** -0.5, visible(n), bias=slopes(heads)[:, None, None] * torch.arange(n))
            return p, g.affine(l, "self_attention.dense", o)

        x = g.pre_norm(t, layer, x, affine_layer_norm(l, "input_layernorm", eps), attention,
                       affine_layer_norm(l, "post_attention_layernorm", eps),
                       lambda y: g.affine(l, "mlp.dense_4h_to_h", g.gelu_new(g.affine(l, "mlp.dense_h_to_4h", y))))
    t["final_norm"] = g.layer_norm(w, "ln_f", x, eps)
    return t


def forward_mpt(w, c, ids):
    w = g.under(w, "transformer.")
    heads, n, eps, d = c["n_heads"], len(ids), c["layer_norm_epsilon"], c["d_model"]
    t = g.Trace(ids=ids)
    x = t["embed"] = w["wte.weight"][ids]
    for layer in range(c["n_layers"]):
        l = g.under(w, f"blocks.{layer}.")

        def attention(x):
            q, k, v = (g.split_heads(part, heads) for part in g.affine(l, "attn.Wqkv", x).split(d, -1))
            p, o = attend(q, k, v, (d // heads) ** -0.5, visible(n), bias=alibi(heads, n))
            return p, g.affine(l, "attn.out_proj", o)

        x = g.pre_norm(t, layer, x, affine_layer_norm(l, "norm_1", eps), attention, affine_layer_norm(l, "norm_2", eps),
                       lambda y: g.affine(l, "ffn.down_proj", g.gelu(g.affine(l, "ffn.up_proj", y))))
    t["final_norm"] = g.layer_norm(w, "norm_f", x, eps)
    return t


def experts_of(l, x, c, stem, names, chosen, renormalised):
    """Every token through each of its experts, one by one."""
    gate, up, down = names
    p = torch.softmax(g.affine(l, stem + "gate", x), -1)
    out = torch.zeros_like(x)
    for i in range(len(x)):
        best = sorted(range(p.shape[1]), key=lambda e: -float(p[i, e]))[:chosen]
        share = p[i, best] / (p[i, best].sum() if renormalised else 1)
        for weight, e in zip(share, best):
            at = f"{stem}experts.{e}."
            y = g.silu(g.affine(l, at + gate, x[i:i + 1])) * g.affine(l, at + up, x[i:i + 1])
            out[i] += weight * g.affine(l, at + down, y)[0]
    return out


def forward_llama_like(w, c, ids):
    """Decoders with LLaMA's names: what differs follows `model_type`."""
    w, kind = g.under(w, "model."), c["model_type"]
    heads, groups, n = c["num_attention_heads"], c["num_key_value_heads"], len(ids)
    hd = c.get("head_dim") or c["hidden_size"] // heads
    eps = 1e-5 if kind == "olmo" else c.get("layer_norm_eps") or c["rms_norm_eps"]
    rotated = int(hd * c.get("partial_rotary_factor", 1.0))
    angles = frequencies(rotated, c["rope_theta"], n)
    turn = rotate_neighbours if kind.startswith("cohere") else g.rotate
    scale = c.get("attention_multiplier", hd ** -0.5)
    add = c["scale_depth"] / math.sqrt(c["num_hidden_layers"]) if kind == "minicpm" else c.get("residual_multiplier", 1.0)
    in_layers = kind in ("stablelm", "cohere", "cohere2")

    def norm(weights, name):
        if kind == "olmo":
            return lambda x: plain_norm(x, eps)
        return affine_layer_norm(weights, name, eps) if in_layers else scaled_rms(weights, name, eps)

    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids] * c.get("embedding_multiplier", c.get("scale_emb", 1.0))
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")
        slides = kind == "cohere2" and (layer + 1) % c["sliding_window_pattern"] != 0
        positions = not (kind == "cohere2" and not slides or kind == "smollm3" and c["no_rope_layers"][layer] == 0)
        seen = visible(n, c["sliding_window"] if slides else None)

        def attention(x):
            q, k, v = (g.affine(l, f"self_attn.{part}_proj", x) for part in "qkv")
            if kind in ("olmo2", "olmoe"):
                q, k = norm(l, "self_attn.q_norm")(q), norm(l, "self_attn.k_norm")(k)
            q, k, v = g.split_heads(q, heads), g.split_heads(k, groups), g.split_heads(v, groups)
            if kind == "qwen3_moe":
                q, k = norm(l, "self_attn.q_norm")(q), norm(l, "self_attn.k_norm")(k)
            if positions:
                q, k = turn(q, angles), turn(k, angles)
            p, o = attend(q, k, v, scale, seen)
            return p, g.affine(l, "self_attn.o_proj", o)

        def ffn(x):
            if kind == "mixtral":
                return experts_of(l, x, c, "block_sparse_moe.", ("w1", "w3", "w2"), c["num_experts_per_tok"], True)
            if "num_experts" in c:
                y = experts_of(l, x, c, "mlp.", ("gate_proj", "up_proj", "down_proj"), c["num_experts_per_tok"],
                               c["norm_topk_prob"])
                if kind == "qwen2_moe":
                    y = y + torch.sigmoid(g.affine(l, "mlp.shared_expert_gate", x)) * gated(l, x, g.silu, "mlp.shared_expert.")
                return y
            return gated(l, x, g.silu)

        if kind == "olmo2":
            x = branch(t, layer, x, attention, norm(l, "post_attention_layernorm"), ffn, norm(l, "post_feedforward_layernorm"))
        elif kind.startswith("cohere"):
            x = one_norm(t, layer, x, norm(l, "input_layernorm"), attention, ffn)
        elif add != 1:
            t.stage(layer, "in", x)
            p, sa = attention(t.stage(layer, "norm1", norm(l, "input_layernorm")(x)))
            t.stage(layer, "attentions", p)
            y = t.stage(layer, "attn", x + add * t.stage(layer, "sa", sa))
            y = y + add * ffn(t.stage(layer, "norm2", norm(l, "post_attention_layernorm")(y)))
            x = t.stage(layer, "out", t.stage(layer, "ffn", y))
        else:
            x = g.pre_norm(t, layer, x, norm(l, "input_layernorm"), attention, norm(l, "post_attention_layernorm"), ffn)
    t["final_norm"] = norm(w, "norm")(x)
    return t


def forward_internlm2(w, c, ids):
    w = g.under(w, "model.")
    heads, groups, n, eps = c["num_attention_heads"], c["num_key_value_heads"], len(ids), c["rms_norm_eps"]
    hd = c["hidden_size"] // heads
    angles = frequencies(hd, c["rope_theta"], n)
    t = g.Trace(ids=ids)
    x = t["embed"] = w["tok_embeddings.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")

        def attention(x):
            q, k, v = grouped_qkv(g.affine(l, "attention.wqkv", x), heads, groups)
            p, o = attend(g.rotate(q, angles), g.rotate(k, angles), v, hd ** -0.5, visible(n))
            return p, g.affine(l, "attention.wo", o)

        x = g.pre_norm(t, layer, x, scaled_rms(l, "attention_norm", eps), attention, scaled_rms(l, "ffn_norm", eps),
                       lambda y: g.affine(l, "feed_forward.w2", g.silu(g.affine(l, "feed_forward.w1", y)) *
                                          g.affine(l, "feed_forward.w3", y)))
    t["final_norm"] = g.rms_norm(w["norm.weight"], x, eps)
    return t


# ---------------------------------------------------------------------------------------------------
# gpt-oss

def e2m1(blocks, scales):
    """OCP Microscaling: blocks (..., 16) of two numbers a byte, the first in the lower half, times 2^(scale - 127)."""
    size = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    level = torch.cat([size, -size])
    numbers = torch.stack([level[(blocks & 15).long()], level[(blocks >> 4).long()]], -1).flatten(-2)
    return (numbers * 2.0 ** (scales.double() - 127)[..., None]).flatten(-2)


def expert_maps(l, name):
    """(experts, in, out), as the library's parameter is."""
    if name in l:
        return l[name]
    return e2m1(l[name + "_blocks"], l[name + "_scales"]).transpose(1, 2)


def forward_gpt_oss(w, c, ids):
    w = g.under(w, "model.")
    heads, groups, hd, eps, n = (c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"], len(ids))
    angles, stretch = torch.arange(n).double()[:, None] * g.inverse_frequencies(c, hd, n), g.stretch(c)
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")
        slides = c["layer_types"][layer] == "sliding_attention"
        seen = visible(n, c["sliding_window"] if slides else None)

        def attention(x):
            q, k, v = projections(l, x, heads, groups)
            k, v = k.repeat_interleave(heads // groups, 0), v.repeat_interleave(heads // groups, 0)
            s = hd ** -0.5 * (g.rotate(q, angles, stretch) @ g.rotate(k, angles, stretch).transpose(1, 2))
            s = s.masked_fill(~seen, -g.INF)
            sinks = l["self_attn.sinks"][:, None, None].expand(heads, n, 1)
            p = torch.softmax(torch.cat([s, sinks], -1), -1)[..., :-1]
            return p, g.affine(l, "self_attn.o_proj", g.join_heads(p @ v))

        def ffn(x):
            logits = g.affine(l, "mlp.router", x)
            into, back = expert_maps(l, "mlp.experts.gate_up_proj"), expert_maps(l, "mlp.experts.down_proj")
            out = torch.zeros_like(x)
            for i in range(n):
                best = sorted(range(c["num_local_experts"]), key=lambda e: -float(logits[i, e]))[:c["num_experts_per_tok"]]
                for share, e in zip(torch.softmax(logits[i, best], -1), best):
                    both = x[i] @ into[e] + l["mlp.experts.gate_up_proj_bias"][e]
                    gate, up = both[0::2].clamp(max=c["swiglu_limit"]), both[1::2].clamp(-c["swiglu_limit"], c["swiglu_limit"])
                    clipped.append((both[0::2] > gate).sum() + (both[1::2] != up).sum())
                    y = (up + 1) * gate * torch.sigmoid(1.702 * gate)
                    out[i] += share * (y @ back[e] + l["mlp.experts.down_proj_bias"][e])
            return out

        clipped = []
        x = g.pre_norm(t, layer, x, scaled_rms(l, "input_layernorm", eps), attention,
                       scaled_rms(l, "post_attention_layernorm", eps), ffn)
        assert sum(clipped) > 0, "the limit of the feed-forward matters"
    t["final_norm"] = g.rms_norm(w["norm.weight"], x, eps)
    return t


# ---------------------------------------------------------------------------------------------------
# DeepSeek V2 and V3

def choose_experts(p, correction, c):
    """The experts of one token, and their shares."""
    count, each, groups, kept = len(p), c["num_experts_per_tok"], c.get("n_group") or 1, c.get("topk_group") or 1
    key = p if correction is None else p + correction
    if c["topk_method"] != "greedy":
        of = [key[i * (count // groups):(i + 1) * (count // groups)] for i in range(groups)]
        score = [float(torch.topk(part, 1 if correction is None else 2).values.sum()) for part in of]
        best = sorted(range(groups), key=lambda i: -score[i])[:kept]
        key = torch.cat([part if i in best else torch.full_like(part, -g.INF) for i, part in enumerate(of)])
    chosen = sorted(range(count), key=lambda e: -float(key[e]))[:each]
    share = p[chosen] / (p[chosen].sum() if c["norm_topk_prob"] else 1)
    return chosen, share * c["routed_scaling_factor"]


def forward_deepseek(w, c, ids):
    w = g.under(w, "model.")
    heads, eps, n = c["num_attention_heads"], c["rms_norm_eps"], len(ids)
    turning, still, values, rank = c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    third, rope = c["model_type"] == "deepseek_v3", c.get("rope_scaling")
    angles, stretch = torch.arange(n).double()[:, None] * g.inverse_frequencies(c, turning, n), g.stretch(c)
    temperature = 0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1 if rope else 1
    scale = (turning + still) ** -0.5 * temperature ** 2
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")

        def attention(x):
            low = x
            if c["q_lora_rank"]:
                low = g.rms_norm(l["self_attn.q_a_layernorm.weight"], g.affine(l, "self_attn.q_a_proj", x), 1e-6)
            q = g.split_heads(g.affine(l, "self_attn." + ("q_b_proj" if c["q_lora_rank"] else "q_proj"), low), heads)
            both = g.affine(l, "self_attn.kv_a_proj_with_mqa", x)
            latent = g.rms_norm(l["self_attn.kv_a_layernorm.weight"], both[:, :rank], 1e-6)
            kv = g.split_heads(g.affine(l, "self_attn.kv_b_proj", latent), heads)
            shared = stretch * rotate_neighbours(both[:, rank:], angles)
            k = torch.cat([kv[..., :still], shared.expand(heads, n, turning)], -1)
            q = torch.cat([q[..., :still], stretch * rotate_neighbours(q[..., still:], angles)], -1)
            p, o = attend(q, k, kv[..., still:], scale, visible(n))
            return p, g.affine(l, "self_attn.o_proj", o)

        def ffn(x):
            if layer < c["first_k_dense_replace"]:
                return gated(l, x, g.silu)
            logits = x @ l["mlp.gate.weight"].t()
            p = torch.sigmoid(logits) if third else torch.softmax(logits, -1)
            rows = []
            for i in range(n):
                chosen, share = choose_experts(p[i], l.get("mlp.gate.e_score_correction_bias"), c)
                rows.append(sum(s * gated(l, x[i:i + 1], g.silu, f"mlp.experts.{e}.") for e, s in zip(chosen, share)))
            return torch.cat(rows) + gated(l, x, g.silu, "mlp.shared_experts.")

        x = g.pre_norm(t, layer, x, scaled_rms(l, "input_layernorm", eps), attention,
                       scaled_rms(l, "post_attention_layernorm", eps), ffn)
    t["final_norm"] = g.rms_norm(w["norm.weight"], x, eps)
    return t


def forward_llama4(w, c, ids):
    """Layers with no_rope_layers 1 rotate neighbours, divide each query and key by its length (times the root of
    its width) and see only their own chunk; in the others queries grow.  The chosen expert acts on s x."""
    c = c.get("text_config", c)
    prefix = next(key for key in w if key.endswith("embed_tokens.weight"))[:-len("embed_tokens.weight")]
    w = g.under(w, prefix)
    heads, groups, hd, eps, n = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"], len(ids)
    angles = torch.arange(n).double()[:, None] * g.inverse_frequencies(c, hd, n)
    position = torch.arange(n).double()
    chunks = torch.arange(n) // c["attention_chunk_size"]
    steps = torch.floor((position + 1) / c["floor_scale"])
    growth = (1 + c["attn_scale"] * torch.log(1 + steps))[:, None] if c["attn_temperature_tuning"] else 1
    rotates = c.get("no_rope_layers") or [int((i + 1) % c.get("no_rope_layer_interval", 4) != 0)
                                          for i in range(c["num_hidden_layers"])]
    t = g.Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"layers.{layer}.")

        def attention(x):
            q, k, v = projections(l, x, heads, groups)
            seen = visible(n)
            if rotates[layer]:
                q, k = rotate_neighbours(q, angles), rotate_neighbours(k, angles)
                if c["use_qk_norm"]:
                    q, k = (y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + eps) for y in (q, k))
                seen = seen & (chunks[:, None] == chunks[None, :])
            else:
                q = q * growth
            p, o = attend(q, k, v, hd ** -0.5, seen)
            return p, g.affine(l, "self_attn.o_proj", o)

        def ffn(x):
            if "feed_forward.router.weight" not in l:
                return gated(l, x, g.silu, "feed_forward.")
            logits = x @ l["feed_forward.router.weight"].t()
            up, down = l["feed_forward.experts.gate_up_proj"], l["feed_forward.experts.down_proj"]
            width = down.shape[1]
            rows = []
            for i in range(n):
                y = 0
                for e in torch.argsort(-logits[i])[:c["num_experts_per_tok"]]:
                    both = (x[i] * torch.sigmoid(logits[i, e])) @ up[e]
                    y = y + (g.silu(both[:width]) * both[width:]) @ down[e]
                rows.append(y)
            return torch.stack(rows) + gated(l, x, g.silu, "feed_forward.shared_expert.")

        x = g.pre_norm(t, layer, x, scaled_rms(l, "input_layernorm", eps), attention,
                       scaled_rms(l, "post_attention_layernorm", eps), ffn)
    t["final_norm"] = g.rms_norm(w["norm.weight"], x, eps)
    return t


# ---------------------------------------------------------------------------------------------------
# Cases

D, HEADS, FF, VOCABULARY = 16, 4, 20, 24


def keys_of_llama(kind, model, groups, layers, **changes):
    return {"architectures": [model + "ForCausalLM"], "model_type": kind, "hidden_size": D, "intermediate_size": FF,
            "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": groups, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 16,
            "vocab_size": VOCABULARY, **changes}


def like_llama(name, kind, model, forward=None, layout="pre-norm", groups=2, hd=4, layers=2, bias=False, norm_bias=None,
               n=8, note=None, heads=HEADS, **changes):
    """The tensors that LLaMA's names have, but for what the family changes."""
    c = {**keys_of_llama(kind, model, groups, layers, **changes), "num_attention_heads": heads}
    c = {key: value for key, value in c.items() if value != "drop"}
    draw = g.Draw(name)
    norm = lambda stem, width=D: draw.norm(stem, width, bias=bool(norm_bias))
    draw.put("model.embed_tokens.weight", VOCABULARY, D, std=0.7)
    for layer in range(layers):
        l = f"model.layers.{layer}."
        if kind not in ("olmo", "olmo2"):
            norm(l + "input_layernorm")
        if kind == "phi3":
            draw.linear(l + "self_attn.qkv_proj", D, (heads + 2 * groups) * hd, bias=False)
            draw.linear(l + "self_attn.o_proj", heads * hd, D, bias=False)
        else:
            draw_projections(draw, l + "self_attn.", D, heads, groups, hd, bias=bias)
        if kind in ("olmo2", "olmoe"):
            norm(l + "self_attn.q_norm", heads * hd)
            norm(l + "self_attn.k_norm", groups * hd)
        if kind == "qwen3_moe":
            norm(l + "self_attn.q_norm", hd)
            norm(l + "self_attn.k_norm", hd)
        if kind not in ("olmo", "cohere", "cohere2"):
            norm(l + "post_attention_layernorm")
        if kind == "olmo2":
            norm(l + "post_feedforward_layernorm")
        if kind == "glm4":
            norm(l + "post_self_attn_layernorm")
            norm(l + "post_mlp_layernorm")
        draw_feed_forward(draw, l, kind, c)
    if kind != "olmo":
        norm("model.norm")
    draw.put("lm_head.weight", VOCABULARY, D)
    trace = (forward or forward_llama_like)(g.widen(draw.weights), c, draw.ids(n, VOCABULARY))
    return [g.finish(name, kind, layout, trace, heads, draw.weights, c, note=note)]


def draw_feed_forward(draw, l, kind, c):
    if kind in ("phi3", "glm", "glm4"):
        draw.linear(l + "mlp.gate_up_proj", D, 2 * FF, bias=False)
        draw.linear(l + "mlp.down_proj", FF, D, bias=False)
    elif kind == "mixtral":
        draw.linear(l + "block_sparse_moe.gate", D, c["num_local_experts"], bias=False)
        for e in range(c["num_local_experts"]):
            at = f"{l}block_sparse_moe.experts.{e}."
            draw.linear(at + "w1", D, FF, bias=False)
            draw.linear(at + "w2", FF, D, bias=False)
            draw.linear(at + "w3", D, FF, bias=False)
    elif "num_experts" in c:
        draw.linear(l + "mlp.gate", D, c["num_experts"], bias=False)
        ff = c.get("moe_intermediate_size", FF)
        for e in range(c["num_experts"]):
            draw_gated(draw, f"{l}mlp.experts.{e}.", D, ff)
        if kind == "qwen2_moe":
            draw_gated(draw, l + "mlp.shared_expert.", D, c["shared_expert_intermediate_size"])
            draw.linear(l + "mlp.shared_expert_gate", D, 1, bias=False)
    else:
        draw_gated(draw, l + "mlp.", D, FF)


def own_names(name, kind, layout, forward, config, tensors, n=8, note=None, model=None):
    """`tensors(draw, layer)` draws a layer; the rest is in `config` under "drawn"."""
    draw, c = g.Draw(name), dict(config)
    for stem, shape in c.pop("drawn"):
        draw.norm(stem, *shape) if len(shape) == 1 else draw.put(stem + ".weight", *shape, std=0.7)
    layers = c.get("num_hidden_layers") or c.get("n_layer") or c["n_layers"]
    for layer in range(layers):
        tensors(draw, layer)
    draw.put("lm_head.weight", VOCABULARY, D)
    trace = forward(g.widen(draw.weights), c, draw.ids(n, VOCABULARY))
    return [g.finish(name, kind, layout, trace, HEADS, draw.weights, c, note=note)]


def phi(name):
    c = {"architectures": ["PhiForCausalLM"], "model_type": "phi", "hidden_size": D, "intermediate_size": FF,
         "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": None, "layer_norm_eps": 1e-5,
         "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new", "max_position_embeddings": 16,
         "vocab_size": VOCABULARY, "qk_layernorm": False, "tie_word_embeddings": False,
         "drawn": [("model.embed_tokens", (VOCABULARY, D)), ("model.final_layernorm", (D,))]}

    def layer(draw, i):
        l = f"model.layers.{i}."
        draw.norm(l + "input_layernorm", D)
        for part in ("q_proj", "k_proj", "v_proj", "dense"):
            draw.linear(l + "self_attn." + part, D, D)
        draw.linear(l + "mlp.fc1", D, FF)
        draw.linear(l + "mlp.fc2", FF, D)

    return own_names(name, "phi", "one-norm", forward_phi, c, layer)


def opt(name):
    c = {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": D, "ffn_dim": FF, "num_hidden_layers": 2,
         "num_attention_heads": HEADS, "activation_function": "relu", "max_position_embeddings": 16, "vocab_size": VOCABULARY,
         "do_layer_norm_before": True, "word_embed_proj_dim": D, "enable_bias": True, "tie_word_embeddings": True,
         "drawn": [("model.decoder.embed_tokens", (VOCABULARY, D)), ("model.decoder.embed_positions", (18, D)),
                   ("model.decoder.final_layer_norm", (D,))]}

    def layer(draw, i):
        l = f"model.decoder.layers.{i}."
        draw.norm(l + "self_attn_layer_norm", D)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            draw.linear(l + "self_attn." + part, D, D)
        draw.norm(l + "final_layer_norm", D)
        draw.linear(l + "fc1", D, FF)
        draw.linear(l + "fc2", FF, D)

    return own_names(name, "opt", "pre-norm", forward_opt, c, layer, note="positions begin at row 2")


def bigcode(name):
    c = {"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": D, "n_inner": FF, "n_layer": 2,
         "n_head": HEADS, "n_positions": 16, "vocab_size": VOCABULARY, "multi_query": True, "scale_attn_weights": True,
         "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5, "attention_softmax_in_fp32": True,
         "scale_attention_softmax_in_fp32": True, "tie_word_embeddings": True,
         "drawn": [("transformer.wte", (VOCABULARY, D)), ("transformer.wpe", (16, D)), ("transformer.ln_f", (D,))]}

    def layer(draw, i):
        l = f"transformer.h.{i}."
        draw.norm(l + "ln_1", D)
        draw.linear(l + "attn.c_attn", D, D + 8)
        draw.linear(l + "attn.c_proj", D, D)
        draw.norm(l + "ln_2", D)
        draw.linear(l + "mlp.c_fc", D, FF)
        draw.linear(l + "mlp.c_proj", FF, D)

    return own_names(name, "gpt_bigcode", "pre-norm", forward_bigcode, c, layer, note="one head of keys and values")


def gptj(name):
    c = {"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": D, "n_inner": None, "n_layer": 2,
         "n_head": 2, "n_positions": 16, "vocab_size": VOCABULARY, "rotary_dim": 4, "activation_function": "gelu_new",
         "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
         "drawn": [("transformer.wte", (VOCABULARY, D)), ("transformer.ln_f", (D,))]}

    def layer(draw, i):
        l = f"transformer.h.{i}."
        draw.norm(l + "ln_1", D)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            draw.linear(l + "attn." + part, D, D, bias=False)
        draw.linear(l + "mlp.fc_in", D, 4 * D)
        draw.linear(l + "mlp.fc_out", 4 * D, D)

    entry = own_names(name, "gptj", "one-norm", forward_gptj, c, layer, note="half of each head rotates")
    entry[0]["heads"] = 2
    return entry


def make_falcon(name, groups, two_norms, note):
    c = {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": D, "num_hidden_layers": 2,
         "num_attention_heads": HEADS, "num_kv_heads": groups if groups > 1 else HEADS, "new_decoder_architecture": groups > 1,
         "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False, "layer_norm_epsilon": 1e-5,
         "rope_theta": 10000.0, "activation": "gelu", "max_position_embeddings": 16, "vocab_size": VOCABULARY,
         "tie_word_embeddings": True,
         "drawn": [("transformer.word_embeddings", (VOCABULARY, D)), ("transformer.ln_f", (D,))]}

    def layer(draw, i):
        l = f"transformer.h.{i}."
        for norm in ("ln_attn", "ln_mlp") if two_norms else ("input_layernorm",):
            draw.norm(l + norm, D)
        draw.linear(l + "self_attention.query_key_value", D, (HEADS + 2 * groups) * 4, bias=False)
        draw.linear(l + "self_attention.dense", D, D, bias=False)
        draw.linear(l + "mlp.dense_h_to_4h", D, 4 * D, bias=False)
        draw.linear(l + "mlp.dense_4h_to_h", 4 * D, D, bias=False)

    return own_names(name, "falcon", "parallel" if two_norms else "one-norm", forward_falcon, c, layer, note=note)


def falcon(name):
    return make_falcon(name, 1, False, "one head of keys and values, one norm")


def falcon_grouped(name):
    return make_falcon(name, 2, True, "two groups of heads, each with its q, k and v, two norms")


def bloom(name):
    c = {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": D, "n_layer": 2, "n_head": HEADS,
         "vocab_size": VOCABULARY, "layer_norm_epsilon": 1e-5, "apply_residual_connection_post_layernorm": False,
         "pretraining_tp": 1, "slow_but_exact": False, "seq_length": 2048, "tie_word_embeddings": True,
         "drawn": [("transformer.word_embeddings", (VOCABULARY, D)), ("transformer.word_embeddings_layernorm", (D,)),
                   ("transformer.ln_f", (D,))]}

    def layer(draw, i):
        l = f"transformer.h.{i}."
        draw.norm(l + "input_layernorm", D)
        draw.linear(l + "self_attention.query_key_value", D, 3 * D)
        draw.linear(l + "self_attention.dense", D, D)
        draw.norm(l + "post_attention_layernorm", D)
        draw.linear(l + "mlp.dense_h_to_4h", D, 4 * D)
        draw.linear(l + "mlp.dense_4h_to_h", 4 * D, D)

    return own_names(name, "bloom", "pre-norm", forward_bloom, c, layer)


def mpt(name):
    c = {"architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": D, "n_layers": 2, "n_heads": HEADS,
         "expansion_ratio": 4, "max_seq_len": 16, "vocab_size": VOCABULARY, "no_bias": True, "learned_pos_emb": True,
         "layer_norm_epsilon": 1e-5, "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "qk_ln": False},
         "logit_scale": None, "norm_type": "low_precision_layernorm", "tie_word_embeddings": True,
         "drawn": [("transformer.wte", (VOCABULARY, D))]}

    def layer(draw, i):
        l = f"transformer.blocks.{i}."
        for norm in ("norm_1", "norm_2"):
            draw.norm(l + norm, D, bias=False)
        if i == 0:
            draw.norm("transformer.norm_f", D, bias=False)
        draw.linear(l + "attn.Wqkv", D, 3 * D, bias=False)
        draw.linear(l + "attn.out_proj", D, D, bias=False)
        draw.linear(l + "ffn.up_proj", D, 4 * D, bias=False)
        draw.linear(l + "ffn.down_proj", 4 * D, D, bias=False)

    return own_names(name, "mpt", "pre-norm", forward_mpt, c, layer)


def internlm2(name):
    c = keys_of_llama("internlm2", "InternLM2", 2, 2, bias=False)
    c["drawn"] = [("model.tok_embeddings", (VOCABULARY, D))]

    def layer(draw, i):
        l = f"model.layers.{i}."
        draw.norm(l + "attention_norm", D, bias=False)
        if i == 0:
            draw.norm("model.norm", D, bias=False)
        draw.linear(l + "attention.wqkv", D, 32, bias=False)
        draw.linear(l + "attention.wo", D, D, bias=False)
        draw.norm(l + "ffn_norm", D, bias=False)
        for part, (inputs, outputs) in {"w1": (D, FF), "w2": (FF, D), "w3": (D, FF)}.items():
            draw.linear(l + "feed_forward." + part, inputs, outputs, bias=False)

    return own_names(name, "internlm2", "pre-norm", forward_internlm2, c, layer)


def llama_cases():
    layer_norms = {"rms_norm_eps": "drop", "layer_norm_eps": 1e-5}
    experts = {"num_experts": 5, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.001, "output_router_logits": False}
    make = lambda *args, **kw: lambda name: like_llama(name, *args, **kw)
    return {
        "phi3": make("phi3", "Phi3", forward_fused, sliding_window=5, original_max_position_embeddings=16),
        "phi3-longrope": make("phi3", "Phi3", forward_fused, hd=8, heads=2, groups=1, sliding_window=None, partial_rotary_factor=0.75,
                              max_position_embeddings=96, original_max_position_embeddings=12,
                              rope_scaling={"type": "longrope", "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.1, 3.0, 9.0]},
                              note="a sample of the original length; three of four pairs rotate"),
        "phi3-longrope-far": make("phi3", "Phi3", forward_fused, sliding_window=None, max_position_embeddings=24,
                                  original_max_position_embeddings=6,
                                  rope_scaling={"type": "su", "short_factor": [1.0, 1.5], "long_factor": [1.2, 4.0]},
                                  note="a sample beyond the original length"),
        "glm": make("glm", "Glm", forward_glm, bias=True, head_dim=4, partial_rotary_factor=0.5, attention_bias=True),
        "glm4": make("glm4", "Glm4", forward_glm, "sandwich", head_dim=4, partial_rotary_factor=0.5, attention_bias=False),
        "smollm3": make("smollm3", "SmolLM3", no_rope_layers=[1, 0], no_rope_layer_interval=2, use_sliding_window=False,
                        sliding_window=None, attention_bias=False, mlp_bias=False, note="layer 1 has no positions"),
        "olmo": make("olmo", "Olmo", rms_norm_eps="drop", clip_qkv=None, attention_bias=False),
        "olmo2": make("olmo2", "Olmo2", layout="branch", attention_bias=False, note="norms behind the branches"),
        "granite": make("granite", "Granite", embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22,
                        logits_scaling=8.0, attention_bias=False, mlp_bias=False),
        "minicpm": make("minicpm", "MiniCPM", layers=3, scale_emb=12, scale_depth=1.4, dim_model_base=4, attention_bias=False,
                        auto_map={"AutoConfig": "configuration_minicpm.MiniCPMConfig",
                                  "AutoModel": "modeling_minicpm.MiniCPMModel"}),
        "stablelm": make("stablelm", "StableLm", hd=4, norm_bias=True, bias=True, use_qkv_bias=True, partial_rotary_factor=0.5,
                         use_parallel_residual=False, qk_layernorm=False, **layer_norms),
        "cohere": make("cohere", "Cohere", layout="one-norm", logit_scale=0.0625, use_qk_norm=False, attention_bias=False,
                       **layer_norms),
        "cohere2": make("cohere2", "Cohere2", layout="one-norm", logit_scale=0.25, attention_bias=False, sliding_window=3,
                        sliding_window_pattern=2, note="windows of 3 in layer 0, no positions in layer 1", **layer_norms),
        "mixtral": make("mixtral", "Mixtral", num_local_experts=5, num_experts_per_tok=2, sliding_window=None,
                        router_aux_loss_coef=0.02, output_router_logits=False),
        "qwen2-moe": make("qwen2_moe", "Qwen2Moe", bias=True, moe_intermediate_size=6, shared_expert_intermediate_size=12,
                          norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False,
                          sliding_window=4, max_window_layers=2, qkv_bias=True, **experts),
        "qwen3-moe": make("qwen3_moe", "Qwen3Moe", hd=6, head_dim=6, moe_intermediate_size=6, norm_topk_prob=True,
                          decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False, use_sliding_window=False,
                          sliding_window=None, max_window_layers=2, **experts),
        "olmoe": make("olmoe", "Olmoe", norm_topk_prob=False, clip_qkv=None, attention_bias=False, **experts),
    }


def original_gpt_oss(weights, c):
    """OpenAI's own names, layouts and configuration: q, k and v one below the other, experts (experts, out, in)."""
    out, names = {}, {"embed_tokens.weight": "embedding.weight", "norm.weight": "norm.scale"}
    for layer in range(c["num_hidden_layers"]):
        l, b = f"layers.{layer}.", f"block.{layer}."
        for kind in ("weight", "bias"):
            out[f"{b}attn.qkv.{kind}"] = torch.cat([weights[f"model.{l}self_attn.{part}_proj.{kind}"] for part in "qkv"])
            names[f"{l}self_attn.o_proj.{kind}"] = f"{b}attn.out.{kind}"
            names[f"{l}mlp.router.{kind}"] = f"{b}mlp.gate.{kind}"
        names.update({l + "input_layernorm.weight": b + "attn.norm.scale", l + "self_attn.sinks": b + "attn.sinks",
                      l + "post_attention_layernorm.weight": b + "mlp.norm.scale"})
        for there, here in (("gate_up_proj", "mlp1"), ("down_proj", "mlp2")):
            at = l + "mlp.experts." + there
            names.update({at + "_bias": f"{b}mlp.{here}_bias", at + "_blocks": f"{b}mlp.{here}_weight.blocks",
                          at + "_scales": f"{b}mlp.{here}_weight.scales"})
            if "model." + at in weights:
                out[f"{b}mlp.{here}_weight"] = weights["model." + at].transpose(1, 2).contiguous()
    out.update({here: weights["model." + there] for there, here in names.items() if "model." + there in weights})
    out["unembedding.weight"] = weights["lm_head.weight"]
    rope = c["rope_scaling"]
    same = ("experts_per_token", "head_dim", "hidden_size", "initial_context_length", "intermediate_size",
            "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rope_theta", "sliding_window", "swiglu_limit",
            "vocab_size")
    return out, {"num_experts": c["num_local_experts"], "rope_scaling_factor": rope["factor"],
                 "rope_ntk_alpha": rope["beta_slow"], "rope_ntk_beta": rope["beta_fast"], **{key: c[key] for key in same}}


def gpt_oss(name, d=D, ff=10, hd=8, experts=5, packed=False, original=False, note=None):
    """In bfloat16; `packed`: the maps of the experts in MXFP4, which needs multiples of 32."""
    groups, layers, n = 2, 2, 9
    c = {"architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0, "eos_token_id": 2,
         "experts_per_token": 2, "head_dim": hd, "hidden_act": "silu", "hidden_size": d, "initial_context_length": 16,
         "initializer_range": 0.02, "intermediate_size": ff, "layer_types": ["sliding_attention", "full_attention"],
         "max_position_embeddings": 64, "model_type": "gpt_oss", "num_attention_heads": HEADS, "num_experts_per_tok": 2,
         "num_hidden_layers": layers, "num_key_value_heads": groups, "num_local_experts": experts,
         "output_router_logits": False, "pad_token_id": 0, "rms_norm_eps": 1e-5,
         "rope_scaling": {"beta_fast": 2.0, "beta_slow": 0.25, "factor": 4.0, "original_max_position_embeddings": 16,
                          "rope_type": "yarn", "truncate": False},
         "rope_theta": 50, "router_aux_loss_coef": 0.9, "sliding_window": 3, "swiglu_limit": 7.0,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": VOCABULARY}
    if packed:
        c["quantization_config"] = {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                               "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}
    draw = g.Draw(name)
    byte = lambda low, high, *shape: torch.randint(low, high, shape, generator=draw.generator).to(torch.uint8)
    draw.put("model.embed_tokens.weight", VOCABULARY, d, std=0.7)
    for layer in range(layers):
        l = f"model.layers.{layer}."
        draw.norm(l + "input_layernorm", d, bias=False)
        draw_projections(draw, l + "self_attn.", d, HEADS, groups, hd, bias=True, out_bias=True)
        draw.put(l + "self_attn.sinks", HEADS, mean=0.5, std=1.0)
        draw.norm(l + "post_attention_layernorm", d, bias=False)
        draw.linear(l + "mlp.router", d, experts)
        for stem, inputs, outputs in (("gate_up_proj", d, 2 * ff), ("down_proj", ff, d)):
            at = f"{l}mlp.experts.{stem}"
            if packed:
                draw.weights[at + "_blocks"] = byte(0, 256, experts, outputs, inputs // 32, 16)
                draw.weights[at + "_scales"] = byte(123, 126, experts, outputs, inputs // 32)
            else:
                draw.put(at, experts, inputs, outputs, std=1.2 if stem == "gate_up_proj" else 0.1)
            draw.put(at + "_bias", experts, outputs, std=0.5)
    draw.norm("model.norm", d, bias=False)
    draw.put("lm_head.weight", VOCABULARY, d)
    for key, tensor in draw.weights.items():
        draw.weights[key] = tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
    trace = forward_gpt_oss(g.widen(draw.weights), c, draw.ids(n, VOCABULARY))
    weights, c = original_gpt_oss(draw.weights, c) if original else (draw.weights, c)
    return [g.finish(name, "gpt_oss", "pre-norm", trace, HEADS, weights, c, note=note, stochastic=False)]


def deepseek(name, version, layers, query_rank, method, experts, groups, kept, more=0, note=None, **changes):
    """`more`: layers that predict further tokens, which are not run."""
    turning, still, values, rank, ff = 4, 6, 5, 7, 6
    c = {"architectures": [f"DeepseekV{version}ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
         "auto_map": {"AutoConfig": f"configuration_deepseek.DeepseekV{version}Config",
                      "AutoModel": f"modeling_deepseek.DeepseekV{version}Model"},
         "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": D, "intermediate_size": FF, "kv_lora_rank": rank,
         "max_position_embeddings": 64, "model_type": f"deepseek_v{version}", "moe_intermediate_size": ff, "moe_layer_freq": 1,
         "n_group": groups, "n_routed_experts": experts, "n_shared_experts": 2, "num_attention_heads": HEADS,
         "num_experts_per_tok": 2, "num_hidden_layers": layers, "num_key_value_heads": HEADS, "q_lora_rank": query_rank,
         "qk_nope_head_dim": still, "qk_rope_head_dim": turning, "rms_norm_eps": 1e-6, "rope_theta": 50,
         "tie_word_embeddings": False, "topk_group": kept, "topk_method": method, "v_head_dim": values,
         "vocab_size": VOCABULARY, **changes}
    draw = g.Draw(name)
    draw.put("model.embed_tokens.weight", VOCABULARY, D, std=0.7)
    for layer in range(layers + more):
        l = f"model.layers.{layer}."
        draw.norm(l + "input_layernorm", D, bias=False)
        if query_rank:
            draw.linear(l + "self_attn.q_a_proj", D, query_rank, bias=False)
            draw.norm(l + "self_attn.q_a_layernorm", query_rank, bias=False)
        draw.linear(l + "self_attn." + ("q_b_proj" if query_rank else "q_proj"), query_rank or D, HEADS * (still + turning),
                    bias=False)
        draw.linear(l + "self_attn.kv_a_proj_with_mqa", D, rank + turning, bias=False)
        draw.norm(l + "self_attn.kv_a_layernorm", rank, bias=False)
        draw.linear(l + "self_attn.kv_b_proj", rank, HEADS * (still + values), bias=False)
        draw.linear(l + "self_attn.o_proj", HEADS * values, D, bias=False)
        draw.norm(l + "post_attention_layernorm", D, bias=False)
        if layer == 0:
            draw_gated(draw, l + "mlp.", D, FF)
            continue
        draw.linear(l + "mlp.gate", D, experts, bias=False)
        if version == 3:
            draw.put(l + "mlp.gate.e_score_correction_bias", experts, std=0.3)
        for e in range(experts):
            draw_gated(draw, f"{l}mlp.experts.{e}.", D, ff)
        draw_gated(draw, l + "mlp.shared_experts.", D, 2 * ff)
        if layer == layers:
            draw.put(l + "embed_tokens.weight", VOCABULARY, D)
            draw.norm(l + "enorm", D, bias=False)
            draw.norm(l + "hnorm", D, bias=False)
            draw.linear(l + "eh_proj", 2 * D, D, bias=False)
            draw.norm(l + "shared_head.norm", D, bias=False)
            draw.put(l + "shared_head.head.weight", VOCABULARY, D)
    draw.norm("model.norm", D, bias=False)
    draw.put("lm_head.weight", VOCABULARY, D)
    trace = forward_deepseek(g.widen(draw.weights), c, draw.ids(9, VOCABULARY))
    return [g.finish(name, c["model_type"], "pre-norm", trace, HEADS, draw.weights, c, note=note)]


def llama4(name, layers, experts, mixed, images, note=None, **changes):
    """`mixed`: layers with experts.  `images`: beside a vision tower, of which two tensors are there."""
    groups, hd, ff, dense, n = 2, 6, 5, 9, 11
    text = {"attention_bias": False, "attention_chunk_size": 4, "attention_dropout": 0.0, "attn_scale": 0.4,
            "attn_temperature_tuning": 4, "bos_token_id": 1, "eos_token_id": [2, 3], "floor_scale": 3,
            "for_llm_compressor": False, "head_dim": hd, "hidden_act": "silu", "hidden_size": D, "initializer_range": 0.02,
            "interleave_moe_layer_step": 1, "intermediate_size": ff, "intermediate_size_mlp": dense,
            "max_position_embeddings": 64, "model_type": "llama4_text", "num_attention_heads": HEADS,
            "num_experts_per_tok": 1, "num_hidden_layers": layers, "num_key_value_heads": groups,
            "num_local_experts": experts, "output_router_logits": False, "pad_token_id": 0, "rms_norm_eps": 1e-5,
            "rope_scaling": None, "rope_theta": 50.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
            "torch_dtype": "bfloat16", "use_cache": True, "use_qk_norm": True, "vocab_size": VOCABULARY, **changes}
    text = {key: value for key, value in text.items() if value != "drop"}
    draw = g.Draw(name)
    outer = "language_model." if images else ""
    model = outer + "model."
    if images:
        draw.put("vision_model.class_embedding", 7)
        draw.linear("vision_model.model.layers.0.self_attn.q_proj", 7, 7)
        draw.linear("multi_modal_projector.linear_1", 7, D, bias=False)
    draw.put(model + "embed_tokens.weight", VOCABULARY, D, std=0.7)
    for layer in range(layers):
        l = f"{model}layers.{layer}."
        draw.norm(l + "input_layernorm", D, bias=False)
        draw_projections(draw, l + "self_attn.", D, HEADS, groups, hd)
        draw.norm(l + "post_attention_layernorm", D, bias=False)
        if layer not in mixed:
            draw_gated(draw, l + "feed_forward.", D, dense)
            continue
        draw.put(l + "feed_forward.router.weight", experts, D, std=0.5)
        draw.put(l + "feed_forward.experts.gate_up_proj", experts, D, 2 * ff, std=0.6)
        draw.put(l + "feed_forward.experts.down_proj", experts, ff, D, std=0.6)
        draw_gated(draw, l + "feed_forward.shared_expert.", D, ff)
    draw.norm(model + "norm", D, bias=False)
    draw.put(outer + "lm_head.weight", VOCABULARY, D)
    c = {"architectures": ["Llama4ForCausalLM"], **text}
    if images:
        c = {"architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 5, "eoi_token_index": 6,
             "image_token_index": 7, "model_type": "llama4", "text_config": text, "tie_word_embeddings": False,
             "torch_dtype": "bfloat16", "transformers_version": "4.51.0.dev0",
             "vision_config": {"hidden_size": 7, "model_type": "llama4_vision_model", "num_hidden_layers": 1}}
    trace = forward_llama4(g.widen(draw.weights), c, draw.ids(n, VOCABULARY))
    return [g.finish(name, "llama4", "pre-norm", trace, HEADS, draw.weights, c, note=note)]


CASES = {"llama4": lambda name: llama4(
             name, 4, 3, range(4), True, moe_layers=[0, 1, 2, 3],
             rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                           "original_max_position_embeddings": 16, "rope_type": "llama3"},
             note="chunks of 4 tokens, experts in every layer, beside a vision tower that is not run"),
         "llama4-dense": lambda name: llama4(
             name, 4, 4, (1, 3), False, interleave_moe_layer_step=2, num_experts_per_tok=2, use_qk_norm=False,
             no_rope_layer_interval=2, attn_temperature_tuning=True,
             note="experts in every other layer, no positions in as many"),
         "deepseek-v2": lambda name: deepseek(name, 2, 2, None, "greedy", 5, 1, 1, norm_topk_prob=False, scoring_func="softmax",
                                              routed_scaling_factor=1.0, aux_loss_alpha=0.001, seq_aux=True),
         "deepseek-v2-groups": lambda name: deepseek(
             name, 2, 2, 8, "group_limited_greedy", 6, 3, 1, norm_topk_prob=False, scoring_func="softmax",
             routed_scaling_factor=3.0, rope_scaling={"beta_fast": 2, "beta_slow": 0.25, "factor": 4, "mscale": 0.707,
                                                      "mscale_all_dim": 0.707, "original_max_position_embeddings": 16,
                                                      "type": "yarn"}),
         "deepseek-v3": lambda name: deepseek(
             name, 3, 3, 8, "noaux_tc", 6, 3, 2, more=1, norm_topk_prob=True, scoring_func="sigmoid", routed_scaling_factor=2.5,
             num_nextn_predict_layers=1, ep_size=1,
             rope_scaling={"beta_fast": 2, "beta_slow": 0.25, "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.5,
                           "original_max_position_embeddings": 16, "type": "yarn"}, note="a layer behind the last is not run"),
         "gpt-oss": lambda name: gpt_oss(name, note="rows of P sum to less than 1; bfloat16"),
         "gpt-oss-mxfp4": lambda name: gpt_oss(name, d=32, ff=32, hd=12, experts=3, packed=True,
                                               note="rows of P sum to less than 1; maps of experts in MXFP4"),
         "gpt-oss-original": lambda name: gpt_oss(name, original=True, note="OpenAI's own names and layouts, bfloat16"),
         "gpt-oss-original-mxfp4": lambda name: gpt_oss(
             name, d=32, ff=32, hd=12, experts=3, packed=True, original=True,
             note="OpenAI's own names and layouts, maps of experts in MXFP4, of which the configuration says nothing"),
         "gemma": gemma, "gemma2": gemma2, "gemma3": gemma3, "phi": phi, "opt": opt, "bigcode": bigcode, "gptj": gptj,
         "falcon": falcon, "falcon-grouped": falcon_grouped, "bloom": bloom, "mpt": mpt, "internlm2": internlm2,
         **llama_cases()}


def register(golden):
    """Adds the cases to those of make_golden.py, given as a module."""
    global g
    g = golden
    for name, function in CASES.items():
        golden.case(name)(function)
