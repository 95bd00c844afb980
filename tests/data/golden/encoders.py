"""Cases of make_golden.py: encoders after BERT, each forward written from its paper or the published description of its
configuration: ELECTRA, ERNIE, Megatron-BERT, BERT with relative positions, MPNet, ModernBERT, DeBERTa 1 to 3.  Plain
float64 PyTorch, one function a family.  The layouts are those of make_golden.py.
"""
import math

import torch

g = None  # make_golden


def bert_encoder(t, w, c, x, attend):
    """Post-norm layers under BERT's names; `attend` (layer's weights, q, k, v) -> P and P v of all heads."""
    heads, eps = c["num_attention_heads"], c["layer_norm_eps"]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"encoder.layer.{layer}.")

        def attention(x):
            q, k, v = (g.split_heads(g.affine(l, "attention.self." + part, x), heads)
                       for part in ("query", "key", "value"))
            p, o = attend(l, q, k, v)
            return p, g.affine(l, "attention.output.dense", o)

        x = g.post_norm(t, layer, x, attention,
                        lambda x: g.layer_norm(l, "attention.output.LayerNorm", x, eps),
                        lambda x: g.affine(l, "output.dense", g.gelu(g.affine(l, "intermediate.dense", x))),
                        lambda x: g.layer_norm(l, "output.LayerNorm", x, eps))
    return t


def plain(c):
    scale = 1 / math.sqrt(c["hidden_size"] // c["num_attention_heads"])
    return lambda l, q, k, v: g.attend(q, k, v, scale)


# ---------------------------------------------------------------------------------------------------
# ELECTRA

def forward_electra(w, c, ids):
    w = g.under(w, "electra.")
    t, e = g.Trace(ids=ids), "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][:len(ids)] \
        + w[e + "token_type_embeddings.weight"][0]
    x = g.layer_norm(w, e + "LayerNorm", x, c["layer_norm_eps"])
    if c["embedding_size"] != c["hidden_size"]:
        x = g.affine(w, "embeddings_project", x)
    t["embed"] = x
    return bert_encoder(t, w, c, x, plain(c))


def draw_electra(name, c):
    """BERT's encoder with an embedding of its own width."""
    draw, e = g.Draw(name), c["embedding_size"]
    g.draw_bert(draw, c, prefix="electra.", pooler=False)
    if e != c["hidden_size"]:
        for stem, rows in (("word", c["vocab_size"]), ("position", c["max_position_embeddings"]), ("token_type", c["type_vocab_size"])):
            draw.put(f"electra.embeddings.{stem}_embeddings.weight", rows, e, std=0.5)
        draw.norm("electra.embeddings.LayerNorm", e)
        draw.linear("electra.embeddings_project", e, c["hidden_size"])
    return draw


def config_electra(**changes):
    return g.config_bert(model_type="electra", hidden_size=12, num_attention_heads=3, intermediate_size=20,
                         summary_type="first", summary_use_proj=True, summary_activation="gelu", **changes)


def electra(name):
    c = config_electra(architectures=["ElectraForPreTraining"], embedding_size=8)
    draw = draw_electra(name, c)
    draw.linear("discriminator_predictions.dense", 12, 12)
    draw.linear("discriminator_predictions.dense_prediction", 12, 1)
    trace = forward_electra(g.widen(draw.weights), c, draw.ids(9, 24))
    return [g.finish(name, "electra", "post-norm", trace, 3, draw.weights, c, note="embedding 8 -> 12, a discriminator")]


def electra_generator(name):
    c = config_electra(architectures=["ElectraForMaskedLM"], embedding_size=12)
    draw = draw_electra(name, c)
    draw.linear("generator_predictions.dense", 12, 12)
    draw.norm("generator_predictions.LayerNorm", 12)
    draw.put("generator_lm_head.bias", 24, std=0.2)
    trace = forward_electra(g.widen(draw.weights), c, draw.ids(8, 24))
    return [g.finish(name, "electra", "post-norm", trace, 3, draw.weights, c,
                     note="embedding as wide as the model: no map; a generator, whose head is tied")]


# ---------------------------------------------------------------------------------------------------
# BERT with other embeddings, positions and norms

def bert_embedding(w, c, ids, positions=True, norm=True):
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "token_type_embeddings.weight"][0]
    if positions:
        x = x + w[e + "position_embeddings.weight"][:len(ids)]
    if e + "task_type_embeddings.weight" in w:
        x = x + w[e + "task_type_embeddings.weight"][0]
    return g.layer_norm(w, e + "LayerNorm", x, c["layer_norm_eps"]) if norm else x


def ernie(name):
    c = g.config_bert(architectures=["ErnieForMaskedLM"], model_type="ernie", hidden_size=12, intermediate_size=20,
                      type_vocab_size=4, task_type_vocab_size=3, use_task_id=True, layer_norm_eps=1e-5)
    draw = g.Draw(name)
    g.draw_bert(draw, c, prefix="ernie.")
    draw.put("ernie.embeddings.task_type_embeddings.weight", 3, 12, std=0.4)
    draw.put("cls.predictions.bias", 24, std=0.2)
    draw.linear("cls.predictions.transform.dense", 12, 12)
    draw.norm("cls.predictions.transform.LayerNorm", 12)
    ids, w = draw.ids(8, 24), g.under(g.widen(draw.weights), "ernie.")
    t = g.Trace(ids=ids)
    t["embed"] = bert_embedding(w, c, ids)
    return [g.finish(name, "ernie", "post-norm", bert_encoder(t, w, c, t["embed"], plain(c)), 3, draw.weights, c)]


def megatron_bert(name):
    """Norms before the branches and one behind the layers; none of the embedding."""
    c = g.config_bert(architectures=["MegatronBertForMaskedLM"], model_type="megatron-bert", hidden_size=12,
                      intermediate_size=20)
    draw, eps, heads = g.Draw(name), c["layer_norm_eps"], c["num_attention_heads"]
    g.draw_bert(draw, c)
    for old in [n for n in draw.weights if "LayerNorm" in n]:
        new = (old.replace("attention.output.LayerNorm", "attention.ln").replace("output.LayerNorm", "ln")
               if "encoder" in old else None)
        value = draw.weights.pop(old)
        if new:
            draw.weights[new] = value
    draw.norm("bert.encoder.ln", 12)
    ids, w = draw.ids(8, 24), g.under(g.widen(draw.weights), "bert.")
    t, attend = g.Trace(ids=ids), plain(c)
    x = t["embed"] = bert_embedding(w, c, ids, norm=False)
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"encoder.layer.{layer}.")

        def attention(x):
            p, o = attend(l, *(g.split_heads(g.affine(l, "attention.self." + part, x), heads) for part in ("query", "key", "value")))
            return p, g.affine(l, "attention.output.dense", o)

        x = g.pre_norm(t, layer, x, lambda x: g.layer_norm(l, "attention.ln", x, eps), attention,
                       lambda x: g.layer_norm(l, "ln", x, eps),
                       lambda x: g.affine(l, "output.dense", g.gelu(g.affine(l, "intermediate.dense", x))))
    t["final_norm"] = g.layer_norm(w, "encoder.ln", x, eps)
    return [g.finish(name, "megatron-bert", "pre-norm", t, heads, draw.weights, c)]


def bert_relative(keys):
    """Each pair's own vector of its distance, one pair after the other.  The table of positions is not added."""
    def make(name):
        c = g.config_bert(architectures=["BertModel"], hidden_size=12, intermediate_size=20, max_position_embeddings=12,
                          position_embedding_type="relative_key_query" if keys else "relative_key")
        draw = g.Draw(name)
        g.draw_bert(draw, c, prefix="")
        for layer in range(2):
            draw.put(f"encoder.layer.{layer}.attention.self.distance_embedding.weight", 23, 4, std=0.5)

        def attend(l, q, k, v):
            table, (heads, n, hd) = l["attention.self.distance_embedding.weight"], q.shape
            logits = torch.zeros(heads, n, n, dtype=torch.float64)
            for i in range(n):
                for j in range(n):
                    a = table[i - j + 11]
                    logits[:, i, j] = ((q[:, i] * k[:, j]).sum(-1) + (q[:, i] * a).sum(-1)
                                       + ((k[:, j] * a).sum(-1) if keys else 0)) / math.sqrt(hd)
            p = torch.softmax(logits, -1)
            return p, g.join_heads(p @ v)

        ids, w = draw.ids(9, 24), g.widen(draw.weights)
        t = g.Trace(ids=ids)
        t["embed"] = bert_embedding(w, c, ids, positions=False)
        return [g.finish(name, "bert", "post-norm", bert_encoder(t, w, c, t["embed"], attend), 3, draw.weights, c)]
    return make


# ---------------------------------------------------------------------------------------------------
# MPNet

def mpnet_class(t):
    """Of the distance j - i = -t: 8 exact ones of each direction, then 8 that end at 8 * 16^(k/8)."""
    far, start = abs(t), 0 if t >= 0 else 16
    if far < 8:
        return start + far
    return start + 8 + max(k for k in range(8) if far ** 8 >= 8 ** 8 * 16 ** k)


def mpnet(name):
    d, heads, ff, vocab, n = 12, 3, 20, 24, 30
    c = {"architectures": ["MPNetForMaskedLM"], "model_type": "mpnet", "hidden_size": d, "num_hidden_layers": 2,
         "num_attention_heads": heads, "intermediate_size": ff, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
         "max_position_embeddings": 34, "vocab_size": vocab, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
         "relative_attention_num_buckets": 32, "initializer_range": 0.02, "hidden_dropout_prob": 0.1,
         "attention_probs_dropout_prob": 0.1}
    draw = g.Draw(name)
    draw.put("mpnet.embeddings.word_embeddings.weight", vocab, d, std=0.7)
    draw.put("mpnet.embeddings.position_embeddings.weight", 34, d, std=0.4)
    draw.norm("mpnet.embeddings.LayerNorm", d)
    draw.put("mpnet.encoder.relative_attention_bias.weight", 32, heads, std=0.8)
    for layer in range(2):
        l = f"mpnet.encoder.layer.{layer}."
        for part in "qkvo":
            draw.linear(l + "attention.attn." + part, d, d)
        draw.norm(l + "attention.LayerNorm", d)
        draw.linear(l + "intermediate.dense", d, ff)
        draw.linear(l + "output.dense", ff, d)
        draw.norm(l + "output.LayerNorm", d)
    draw.linear("mpnet.pooler.dense", d, d)
    draw.linear("lm_head.dense", d, d)
    draw.norm("lm_head.layer_norm", d)
    draw.put("lm_head.bias", vocab, std=0.2)
    ids = draw.ids(n, vocab)
    ids[4] = 1                                            # padding, which keeps its own position
    w, eps = g.under(g.widen(draw.weights), "mpnet."), c["layer_norm_eps"]
    real = (ids != 1).long()
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][torch.cumsum(real, 0) * real + 1]
    t = g.Trace(ids=ids)
    x = t["embed"] = g.layer_norm(w, "embeddings.LayerNorm", x, eps)
    classes = torch.tensor([[mpnet_class(i - j) for j in range(n)] for i in range(n)])
    bias = w["encoder.relative_attention_bias.weight"][classes].permute(2, 0, 1)
    for layer in range(2):
        l = g.under(w, f"encoder.layer.{layer}.")

        def attention(x):
            q, k, v = (g.split_heads(g.affine(l, "attention.attn." + part, x), heads) for part in "qkv")
            p = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(d // heads) + bias, -1)
            return p, g.affine(l, "attention.attn.o", g.join_heads(p @ v))

        x = g.post_norm(t, layer, x, attention, lambda x: g.layer_norm(l, "attention.LayerNorm", x, eps),
                        lambda x: g.affine(l, "output.dense", g.gelu(g.affine(l, "intermediate.dense", x))),
                        lambda x: g.layer_norm(l, "output.LayerNorm", x, eps))
    return [g.finish(name, "mpnet", "post-norm", t, heads, draw.weights, c,
                     note="30 tokens, so that distances share classes; id 4 is padding")]


# ---------------------------------------------------------------------------------------------------
# ModernBERT

def modernbert(name):
    d, heads, ff, layers, vocab, n, eps = 12, 3, 10, 4, 24, 9, 1e-5
    c = {"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "hidden_size": d,
         "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": ff, "hidden_activation": "gelu",
         "norm_eps": eps, "norm_bias": False, "attention_bias": False, "mlp_bias": False, "max_position_embeddings": 16,
         "vocab_size": vocab, "local_attention": 4, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
         "local_rope_theta": 100.0, "pad_token_id": 0, "decoder_bias": True, "classifier_pooling": "mean",
         "deterministic_flash_attn": False, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02}
    draw = g.Draw(name)
    draw.put("model.embeddings.tok_embeddings.weight", vocab, d, std=0.7)
    draw.norm("model.embeddings.norm", d, bias=False)
    for layer in range(layers):
        l = f"model.layers.{layer}."
        if layer > 0:
            draw.norm(l + "attn_norm", d, bias=False)
        draw.linear(l + "attn.Wqkv", d, 3 * d, bias=False)
        draw.linear(l + "attn.Wo", d, d, bias=False)
        draw.norm(l + "mlp_norm", d, bias=False)
        draw.linear(l + "mlp.Wi", d, 2 * ff, bias=False)
        draw.linear(l + "mlp.Wo", ff, d, bias=False)
    draw.norm("model.final_norm", d, bias=False)
    draw.linear("head.dense", d, d, bias=False)
    draw.norm("head.norm", d, bias=False)
    draw.put("decoder.bias", vocab, std=0.2)
    ids, w = draw.ids(n, vocab), g.under(g.widen(draw.weights), "model.")
    t = g.Trace(ids=ids)
    x = t["embed"] = g.layer_norm(w, "embeddings.norm", w["embeddings.tok_embeddings.weight"][ids], eps)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    for layer in range(layers):
        l, local = g.under(w, f"layers.{layer}."), layer % 3 != 0
        base, seen = (100.0, (i - j).abs() <= 2) if local else (160000.0, (i - j).abs() <= n)
        angles = torch.arange(n).double()[:, None] * base ** (-torch.arange(0, d // heads, 2).double() / (d // heads))

        def attention(x):
            q, k, v = (g.split_heads(part, heads) for part in g.affine(l, "attn.Wqkv", x).chunk(3, -1))
            p, o = g.attend(g.rotate(q, angles), g.rotate(k, angles), v, (d // heads) ** -0.5, seen)
            return p, g.affine(l, "attn.Wo", o)

        def ffn(x):
            inner, gate = g.affine(l, "mlp.Wi", x).chunk(2, -1)
            return g.affine(l, "mlp.Wo", g.gelu(inner) * gate)

        t.stage(layer, "in", x)
        y = x if layer == 0 else t.stage(layer, "norm1", g.layer_norm(l, "attn_norm", x, eps))
        p, sa = attention(y)
        t.stage(layer, "attentions", p)
        y = t.stage(layer, "attn", x + t.stage(layer, "sa", sa))
        x = t.stage(layer, "ffn", y + ffn(t.stage(layer, "norm2", g.layer_norm(l, "mlp_norm", y, eps))))
        t.stage(layer, "out", x)
    t["final_norm"] = g.layer_norm(w, "final_norm", x, eps)
    return [g.finish(name, "modernbert", "pre-norm", t, heads, draw.weights, c,
                     note="two tokens on either side in layers 1 and 2; no norm1 in layer 0")]


# ---------------------------------------------------------------------------------------------------
# DeBERTa

def deberta_class(t, buckets, longest):
    """Exact up to half of the buckets; beyond, the bucket whose upper end, half * base^k, is not below."""
    half, far = buckets // 2, abs(t)
    if far <= half:
        return t
    base = ((longest - 1) / half) ** (1 / (half - 1))
    k = next(k for k in range(10 ** 6) if half * base ** k >= far * (1 - 1e-13))
    return (half + k) * (1 if t > 0 else -1)


def deberta_attend(c, rel, terms, span, pairs):
    """`pairs` (layer's weights) -> keys and queries of the rows of `rel`; pair by pair."""
    heads, hd = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"]
    buckets = c.get("position_buckets", -1)

    def attend(l, q, k, v):
        n = q.shape[1]
        a, b = pairs(l, rel)
        logits = torch.zeros(heads, n, n, dtype=torch.float64)
        for i in range(n):
            for j in range(n):
                t = deberta_class(i - j, buckets, c["longest"]) if buckets > 0 else i - j
                row = min(max(t + span, 0), 2 * span - 1)
                s = (q[:, i] * k[:, j]).sum(-1)
                if "c2p" in terms:
                    s = s + (q[:, i] * a[:, row]).sum(-1)
                if "p2c" in terms:
                    s = s + (k[:, j] * b[:, row]).sum(-1)
                logits[:, i, j] = s / math.sqrt(hd * (1 + len(terms)))
        p = torch.softmax(logits, -1)
        return p, g.join_heads(p @ v)
    return attend


def config_deberta(kind, **changes):
    c = g.config_bert(architectures=[kind + "ForMaskedLM"], hidden_size=12, intermediate_size=20, layer_norm_eps=1e-7,
                      relative_attention=True, pos_att_type="c2p|p2c", max_relative_positions=-1,
                      position_biased_input=False, type_vocab_size=0, max_position_embeddings=24, **changes)
    del c["position_embedding_type"]
    return c


def draw_deberta(draw, c, rows):
    d = c["hidden_size"]
    g.draw_bert(draw, {**c, "type_vocab_size": max(1, c["type_vocab_size"])}, prefix="deberta.", pooler=False)
    if not c["position_biased_input"]:
        del draw.weights["deberta.embeddings.position_embeddings.weight"]
    if c["type_vocab_size"] == 0:
        del draw.weights["deberta.embeddings.token_type_embeddings.weight"]
    draw.put("deberta.encoder.rel_embeddings.weight", rows, d, std=0.6)


def deberta_trace(draw, c, ids, attend_of, prefix="deberta."):
    w, e, eps = g.under(g.widen(draw.weights), prefix), "embeddings.", c["layer_norm_eps"]
    x = w[e + "word_embeddings.weight"][ids]
    if c["position_biased_input"]:
        x = x + w[e + "position_embeddings.weight"][:len(ids)]
    if c["type_vocab_size"]:
        x = x + w[e + "token_type_embeddings.weight"][0]
    t = g.Trace(ids=ids)
    t["embed"] = g.layer_norm(w, e + "LayerNorm", x, eps)
    attend, heads = attend_of(w), c["num_attention_heads"]
    x = t["embed"]
    for layer in range(c["num_hidden_layers"]):
        l = g.under(w, f"encoder.layer.{layer}.")

        def attention(x):
            if "attention.self.in_proj.weight" in l:      # q, k and v of each head in turn
                hd = c["hidden_size"] // heads
                q, k, v = (x @ l["attention.self.in_proj.weight"].t()).view(len(x), heads, 3, hd).permute(2, 1, 0, 3)
                q = q + l["attention.self.q_bias"].view(heads, 1, hd)
                v = v + l["attention.self.v_bias"].view(heads, 1, hd)
            else:
                q, k, v = (g.split_heads(g.affine(l, f"attention.self.{part}_proj", x), heads) for part in ("query", "key", "value"))
            p, o = attend(l, q, k, v)
            return p, g.affine(l, "attention.output.dense", o)

        x = g.post_norm(t, layer, x, attention, lambda x: g.layer_norm(l, "attention.output.LayerNorm", x, eps),
                        lambda x: g.affine(l, "output.dense", g.gelu(g.affine(l, "intermediate.dense", x))),
                        lambda x: g.layer_norm(l, "output.LayerNorm", x, eps))
    return t


def deberta(name):
    c = config_deberta("Deberta", model_type="deberta", padding_idx=0)
    draw, d = g.Draw(name), 12
    c["max_relative_positions"] = 6                       # 9 tokens: the farthest share a row
    draw_deberta(draw, c, 12)
    for layer in range(2):
        s = f"deberta.encoder.layer.{layer}.attention.self."
        for part in ("query", "key", "value"):
            for kind in ("weight", "bias"):
                del draw.weights[f"{s}{part}.{kind}"]
        draw.linear(s + "in_proj", d, 3 * d, bias=False)
        draw.put(s + "q_bias", d, std=0.3)
        draw.put(s + "v_bias", d, std=0.3)
        draw.linear(s + "pos_proj", d, d, bias=False)
        draw.linear(s + "pos_q_proj", d, d)
    draw.put("cls.predictions.bias", 24, std=0.2)
    draw.linear("cls.predictions.transform.dense", d, d)
    draw.norm("cls.predictions.transform.LayerNorm", d)
    pairs = lambda l, rel: tuple(g.split_heads(g.affine(l, "attention.self." + part, rel), 3) for part in ("pos_proj", "pos_q_proj"))
    trace = deberta_trace(draw, c, draw.ids(9, 24),
                          lambda w: deberta_attend(c, w["encoder.rel_embeddings.weight"], ("c2p", "p2c"), 6, pairs))
    return [g.finish(name, "deberta", "post-norm", trace, 3, draw.weights, c, note="q, k and v head by head, k without bias")]


def rename_projections(draw):
    for old in [n for n in draw.weights if ".attention.self." in n]:
        stem, kind = old.rsplit(".", 1)
        draw.weights[f"{stem}_proj.{kind}"] = draw.weights.pop(old)


def deberta_v2(name):
    """The other settings of the second version: maps of their own, one term, positions and types added, no classes."""
    c = config_deberta("DebertaV2", model_type="deberta-v2")
    c.update(position_biased_input=True, type_vocab_size=2, pos_att_type=["c2p"], share_att_key=False, max_position_embeddings=12)
    draw, d = g.Draw(name), 12
    draw_deberta(draw, c, 24)
    rename_projections(draw)
    for layer in range(2):
        draw.linear(f"deberta.encoder.layer.{layer}.attention.self.pos_key_proj", d, d)
    pairs = lambda l, rel: (g.split_heads(g.affine(l, "attention.self.pos_key_proj", rel), 3), None)
    trace = deberta_trace(draw, c, draw.ids(9, 24),
                          lambda w: deberta_attend(c, w["encoder.rel_embeddings.weight"], ("c2p",), 12, pairs))
    return [g.finish(name, "deberta-v2", "post-norm", trace, 3, draw.weights, c, note="c2p alone, by a map of its own")]


def deberta_v3(name):
    c = config_deberta("DebertaV2", model_type="deberta-v2", position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True)
    draw, d = g.Draw(name), 12
    draw_deberta(draw, c, 16)
    rename_projections(draw)
    draw.norm("deberta.encoder.LayerNorm", d)
    draw.linear("lm_predictions.lm_head.dense", d, d)
    draw.norm("lm_predictions.lm_head.LayerNorm", d)
    draw.put("lm_predictions.lm_head.bias", 24, std=0.2)
    draw.linear("mask_predictions.dense", d, d)
    draw.linear("mask_predictions.classifier", d, 1)
    pairs = lambda l, rel: tuple(g.split_heads(g.affine(l, f"attention.self.{part}_proj", rel), 3) for part in ("key", "query"))

    def attend(w):
        rel = g.layer_norm(w, "encoder.LayerNorm", w["encoder.rel_embeddings.weight"], c["layer_norm_eps"])
        return deberta_attend({**c, "longest": c["max_position_embeddings"]}, rel, ("c2p", "p2c"), 8, pairs)

    trace = deberta_trace(draw, c, draw.ids(20, 24), attend)
    return [g.finish(name, "deberta-v2", "post-norm", trace, 3, draw.weights, c,
                     note="20 tokens: distances beyond 4 are in classes; maps shared with queries and keys")]


CASES = {"electra": electra, "electra-generator": electra_generator, "ernie": ernie, "megatron-bert": megatron_bert,
         "bert-relative-key": bert_relative(False), "bert-relative-key-query": bert_relative(True), "mpnet": mpnet,
         "modernbert": modernbert, "deberta": deberta, "deberta-v2": deberta_v2, "deberta-v3": deberta_v3}


def register(golden):
    """Adds the cases to those of make_golden.py, given as a module."""
    global g
    g = golden
    for name, function in CASES.items():
        golden.case(name)(function)
