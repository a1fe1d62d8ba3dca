"""The matrix: a real gateway, a real loomid and a real WebSocket phone, scenario by scenario."""
