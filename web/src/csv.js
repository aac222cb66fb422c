// Quoting of fields in CSV files.

/** A field, in quotes if it needs them. @param {string} text */
export const quoteField = (text) => (/[",\n\r]/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text);
