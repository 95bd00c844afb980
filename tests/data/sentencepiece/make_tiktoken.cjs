// Ids of js-tiktoken for the first ranks of its vocabularies.
//
//     npm install js-tiktoken && node make_tiktoken.cjs      # js-tiktoken 1.0.21
//
// Writes NAME.tiktoken, the first 700 ranks of the published file, and NAME.tiktoken.json, the texts of
// bpe.json with their ids.
const fs = require("fs");
const { Tiktoken } = require("js-tiktoken/lite");
const texts = JSON.parse(fs.readFileSync("bpe.json")).texts.map((one) => one[0]);
for (const name of ["cl100k_base", "o200k_base", "r50k_base"]) {
    const all = require("js-tiktoken/ranks/" + name);
    const ranks = all.bpe_ranks.split("\n").filter(Boolean).flatMap((line) => {
        const [, first, ...tokens] = line.split(" ");
        return tokens.map((token, i) => [token, Number(first) + i]);
    }).filter(([, rank]) => rank < 700).sort((a, b) => a[1] - b[1]);
    const own = new Tiktoken({
        pat_str: all.pat_str, special_tokens: {},
        bpe_ranks: "! 0 " + ranks.map(([token]) => token).join(" ") });
    fs.writeFileSync(name + ".tiktoken", ranks.map(([token, rank]) => `${token} ${rank}\n`).join(""));
    const ascii = JSON.stringify(texts.map((text) => [text, own.encode(text, [], [])])).replace(
        /[\u0080-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
    fs.writeFileSync(name + ".tiktoken.json", ascii + "\n");
}
