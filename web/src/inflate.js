// Decompresses data that is embedded in a page.

/** @param {string} text  base64 of deflated bytes @returns {Promise<ArrayBuffer>} */
export async function inflate(text) {
  const characters = atob(text), bytes = new Uint8Array(characters.length);
  for (let index = 0; index < bytes.length; index++) bytes[index] = characters.charCodeAt(index);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}
